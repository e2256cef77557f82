module waypost.test/informers

go 1.24.0

require (
	k8s.io/api v0.36.6
	k8s.io/apimachinery v0.36.6
	k8s.io/client-go v0.36.6
)
