module waypost.test/bundles

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.94.1
	sigs.k8s.io/gateway-api v1.7.0
)
