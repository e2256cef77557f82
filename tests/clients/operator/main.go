// Command operator is an operator made with controller-runtime as kubebuilder lays one out: a kind in two versions, a reconciler with a finalizer
// and owned objects, defaulting, validating and conversion webhooks, and leader election.
package main

import (
	"context"
	"flag"
	"os"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	v1 "waypost.test/operator/v1"
	"waypost.test/operator/v1alpha1"
)

func main() {
	ctrl.SetLogger(zap.New())
	namespace := flag.String("namespace", os.Getenv("POD_NAMESPACE"), "namespace of the operator")
	flag.Parse()
	if err := run(ctrl.SetupSignalHandler(), *namespace); err != nil {
		ctrl.Log.Error(err, "operator ended")
		os.Exit(1)
	}
}

func run(ctx context.Context, namespace string) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	folder, err := prepareWebhooks(ctx, direct, namespace)
	if err != nil {
		return err
	}
	lease, renew, retry := 6*time.Second, 4*time.Second, time.Second
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                  scheme,
		LeaderElection:          true,
		LeaderElectionID:        "cache-operator",
		LeaderElectionNamespace: namespace,
		LeaseDuration:           &lease,
		RenewDeadline:           &renew,
		RetryPeriod:             &retry,
		HealthProbeBindAddress:  ":8081",
		Metrics:                 metrics.Options{BindAddress: "0"},
		WebhookServer:           webhook.NewServer(webhook.Options{Port: 9443, CertDir: folder}),
	})
	if err != nil {
		return err
	}
	if err := setUp(manager); err != nil {
		return err
	}
	return manager.Start(ctx)
}

func setUp(manager ctrl.Manager) error {
	if err := (&reconciler{manager.GetClient(), manager.GetScheme(), manager.GetEventRecorderFor("cache-operator")}).setUp(manager); err != nil {
		return err
	}
	hooks := &hooks{}
	if err := ctrl.NewWebhookManagedBy(manager, &v1.Cache{}).WithDefaulter(hooks).WithValidator(hooks).Complete(); err != nil {
		return err
	}
	if err := manager.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return manager.AddReadyzCheck("webhooks", manager.GetWebhookServer().StartedChecker())
}
