module waypost.test/kubectl

go 1.23.0

require (
	k8s.io/client-go v0.33.13
	k8s.io/component-base v0.33.13
	k8s.io/kubectl v0.33.13
)
