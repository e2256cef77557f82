package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

const (
	workers = 4
	objects = 25
	updates = 3
	// Between the writes of a worker, so that they go on while informers wait before they connect again.
	pause = 100 * time.Millisecond
)

var kinds = map[schema.GroupVersionResource]string{configMaps: "ConfigMap", widgets: "Widget"}

// acknowledged holds the writes to one resource that the server answered with success.
type acknowledged struct {
	written map[version]bool
	deleted map[string]bool
}

// writers create, update and delete objects until each write succeeded, whatever happens to the server.
type writers struct {
	dynamic      dynamic.Interface
	total        int
	done         atomic.Int64
	mutex        sync.Mutex
	group        sync.WaitGroup
	err          error
	acknowledged map[schema.GroupVersionResource]*acknowledged
}

func object(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(resource.GroupVersion().WithKind(kinds[resource]))
	out.SetName(name)
	setCount(out, 0)
	return out
}

func setCount(object *unstructured.Unstructured, count int) {
	_ = unstructured.SetNestedField(object.Object, fmt.Sprint(count), "data", "count")
}

// seed creates the objects that informers find when they start.
func (b *bed) seed(ctx context.Context, resource schema.GroupVersionResource, count int) error {
	for number := range count {
		one := object(resource, fmt.Sprintf("seed-%d", number))
		if _, err := b.dynamic.Resource(resource).Namespace("default").Create(ctx, one, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) startWriters(ctx context.Context, followed []*followed, prefix string) *writers {
	w := &writers{dynamic: b.dynamic, acknowledged: map[schema.GroupVersionResource]*acknowledged{}}
	for _, one := range followed {
		w.acknowledged[one.resource] = &acknowledged{map[version]bool{}, map[string]bool{}}
		w.total += workers * objects * (1 + updates) // Every second object is deleted besides.
		for worker := range workers {
			w.group.Add(1)
			go func() {
				defer w.group.Done()
				for number := range objects {
					if err := w.life(ctx, one.resource, fmt.Sprintf("%s-%d-%d", prefix, worker, number), number%2 == 0); err != nil {
						w.mutex.Lock()
						w.err = errors.Join(w.err, err)
						w.mutex.Unlock()
						return
					}
				}
			}()
		}
	}
	return w
}

// life is what happens to one object.
func (w *writers) life(ctx context.Context, resource schema.GroupVersionResource, name string, isDeleted bool) error {
	client := w.dynamic.Resource(resource).Namespace("default")
	current, err := untilDone(ctx, func() (*unstructured.Unstructured, error) {
		created, err := client.Create(ctx, object(resource, name), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // An earlier attempt was committed, and its answer was lost.
			return client.Get(ctx, name, metav1.GetOptions{})
		}
		return created, err
	})
	if err != nil {
		return err
	}
	w.wrote(resource, current)
	for count := range updates {
		current, err = untilDone(ctx, func() (*unstructured.Unstructured, error) {
			desired := current.DeepCopy()
			setCount(desired, count+1)
			updated, err := client.Update(ctx, desired, metav1.UpdateOptions{})
			if apierrors.IsConflict(err) {
				return client.Get(ctx, name, metav1.GetOptions{})
			}
			return updated, err
		})
		if err != nil {
			return err
		}
		if said, _, _ := unstructured.NestedString(current.Object, "data", "count"); said != fmt.Sprint(count+1) {
			return fmt.Errorf("%s: acknowledged update %d, stored %s", name, count+1, said)
		}
		w.wrote(resource, current)
	}
	if !isDeleted {
		return nil
	}
	_, err = untilDone(ctx, func() (*unstructured.Unstructured, error) {
		err := client.Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return nil, err
	})
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.acknowledged[resource].deleted[name] = true
	return err
}

// untilDone repeats a write whose outcome is unknown: the server is down or went down.
func untilDone(ctx context.Context, write func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	var out *unstructured.Unstructured
	var last error
	err := wait(ctx, time.Minute, func() bool {
		out, last = write()
		var status apierrors.APIStatus
		return last == nil || errors.As(last, &status) && status.Status().Code < 500 && status.Status().Code != 429
	})
	return out, errors.Join(last, err)
}

func (w *writers) wrote(resource schema.GroupVersionResource, object *unstructured.Unstructured) {
	defer time.Sleep(pause)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.acknowledged[resource].written[version{object.GetName(), object.GetResourceVersion()}] = true
	w.done.Add(1)
}

// reached waits for a number of acknowledged writes.
func (w *writers) reached(ctx context.Context, count int) error {
	return wait(ctx, time.Minute, func() bool { return w.done.Load() >= int64(count) })
}

func (w *writers) wait() error {
	w.group.Wait()
	return w.err
}
