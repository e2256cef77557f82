// Command informers runs client-go's informers and leader election against an API server that it starts, kills (SIGKILL) and starts again.
//
//	informers -kubeconfig FILE [-restarts N] -- waypost server --data-dir DIR --listen ADDRESS
//
// It prints one line for each check, "ok" or "FAILED" with the figures, and exits with status 1 when one failed. Which version of client-go it is
// built with is decided by -modfile; KUBE_FEATURE_WatchListClient selects streaming lists.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const deadline = 6 * time.Minute

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	widgets    = schema.GroupVersionResource{Group: "clients.example.com", Version: "v1", Resource: "widgets"}
)

// bed is what every check needs.
type bed struct {
	server   *server
	config   *rest.Config
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	requests *requests
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the kubeconfig that the server writes")
	restarts := flag.Int("restarts", 3, "how often the server is killed during the writes")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	server := &server{command: flag.Args(), kubeconfig: *kubeconfig}
	defer server.kill()
	if err := run(ctx, server, *restarts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		server.kill()
		os.Exit(1)
	}
}

func run(ctx context.Context, server *server, restarts int) error {
	if err := server.start(ctx); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", server.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	writes := rest.CopyConfig(config)
	counted := &requests{streams: map[string]int{}}
	config.Wrap(counted.wrap)
	bed := &bed{
		server: server, config: config, requests: counted,
		client: kubernetes.NewForConfigOrDie(config), dynamic: dynamic.NewForConfigOrDie(writes),
	}
	if err := bed.define(ctx); err != nil {
		return fmt.Errorf("definition: %w", err)
	}
	for _, resource := range []schema.GroupVersionResource{configMaps, widgets} {
		if err := bed.seed(ctx, resource, 50); err != nil {
			return fmt.Errorf("seed %s: %w", resource.Resource, err)
		}
	}
	checks := []struct {
		name  string
		check func(context.Context) (string, error)
	}{
		{"informers", func(ctx context.Context) (string, error) { return bed.informers(ctx, "calm", 0) }},
		{"informers over restarts", func(ctx context.Context) (string, error) { return bed.informers(ctx, "kills", restarts) }},
		{"resync", bed.resync},
		{"leader election", bed.election},
	}
	failed := 0
	for _, one := range checks {
		figures, err := one.check(ctx)
		if err != nil {
			failed++
			fmt.Printf("FAILED\t%s\t%v\n", one.name, err)
			continue
		}
		fmt.Printf("ok\t%s\t%s\n", one.name, figures)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(checks))
	}
	return nil
}

// informers follows ConfigMaps with a typed informer and custom resources with a dynamic one, while writers change both and the server is killed.
func (b *bed) informers(ctx context.Context, prefix string, kills int) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before := b.requests.snapshot()
	typed := informers.NewSharedInformerFactoryWithOptions(b.client, 0, informers.WithNamespace("default"))
	custom := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(b.config), 0, "default", nil)
	followed := []*followed{
		follow(configMaps, typed.Core().V1().ConfigMaps().Informer()),
		follow(widgets, custom.ForResource(widgets).Informer()),
	}
	typed.Start(ctx.Done())
	custom.Start(ctx.Done())
	for _, one := range followed {
		if !cache.WaitForCacheSync(ctx.Done(), one.registration.HasSynced) {
			return "", fmt.Errorf("%s: not synced", one.resource.Resource)
		}
	}
	lists := b.requests.since(before)
	if err := expectLists(lists); err != nil {
		return "", err
	}
	writers := b.startWriters(ctx, followed, prefix)
	if err := b.killBetween(ctx, writers, kills); err != nil {
		return "", err
	}
	if err := writers.wait(); err != nil {
		return "", err
	}
	var all string
	for _, one := range followed {
		said, err := b.settled(ctx, one, writers.acknowledged[one.resource], kills > 0)
		if err != nil {
			return "", fmt.Errorf("%w; initial: %s; then: %s", err, lists, b.requests.since(before).minus(lists))
		}
		all += "; " + said
	}
	return fmt.Sprintf("%d kills; initial: %s; then: %s%s", kills, lists, b.requests.since(before).minus(lists), all), nil
}

// expectLists compares how informers got their first objects with what the feature gate selects.
func expectLists(got counts) error {
	streamed := clientfeatures.FeatureGates().Enabled(clientfeatures.WatchListClient)
	if streamed && (got.streamedLists != 2 || got.lists != 0) || !streamed && (got.streamedLists != 0 || got.lists != 2) {
		return fmt.Errorf("WatchListClient=%v, but the informers sent %s", streamed, got)
	}
	return nil
}

// killBetween kills the server each time another part of the writes has been acknowledged and the informers watch again.
func (b *bed) killBetween(ctx context.Context, writers *writers, kills int) error {
	for killed := range kills {
		if err := writers.reached(ctx, (killed+1)*writers.total/(kills+1)); err != nil {
			return fmt.Errorf("writes before kill %d: %w", killed+1, err)
		}
		before := b.requests.opened()
		b.server.kill()
		if err := b.server.start(ctx); err != nil {
			return err
		}
		if err := wait(ctx, time.Minute, func() bool { return b.requests.reopened(before) }); err != nil {
			return fmt.Errorf("the informers do not watch again after kill %d: %w", killed+1, err)
		}
	}
	return nil
}

// resync expects each object of the store to be handed to the handler again, without a request.
func (b *bed) resync(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	factory := informers.NewSharedInformerFactoryWithOptions(b.client, time.Second, informers.WithNamespace("default"))
	informer := factory.Core().V1().ConfigMaps().Informer()
	followed := follow(configMaps, informer)
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), followed.registration.HasSynced) {
		return "", fmt.Errorf("not synced")
	}
	before := b.requests.snapshot()
	objects := len(informer.GetStore().ListKeys())
	err := wait(ctx, 20*time.Second, func() bool { return followed.ledger.figures().resyncs >= 2*objects })
	figures := followed.ledger.figures()
	if err != nil {
		return "", fmt.Errorf("%d resyncs of %d objects: %w", figures.resyncs, objects, err)
	}
	if sent := b.requests.since(before); sent.lists+sent.streamedLists > 0 {
		return "", fmt.Errorf("resync sent requests: %s", sent)
	}
	if len(figures.faults) > 0 {
		return "", fmt.Errorf("%v", figures.faults)
	}
	return fmt.Sprintf("%d objects, %d resyncs, 0 lists", objects, figures.resyncs), nil
}

// wait polls until the condition holds: what it waits for happens in another process or in a handler.
func wait(ctx context.Context, limit time.Duration, condition func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}
