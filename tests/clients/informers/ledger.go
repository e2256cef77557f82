package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// figures counts what handlers received. Faults are events that a store with the objects before them does not allow.
type figures struct {
	adds, updates, deletes, resyncs int
	faults                          []string
}

// version names a state of an object.
type version struct{ name, revision string }

// ledger records the events of one informer and compares each with those before it.
type ledger struct {
	mutex   sync.Mutex
	known   map[string]metav1.Object
	seen    map[version]bool
	deleted map[string]bool
	counted figures
}

// followed is an informer with its ledger.
type followed struct {
	resource     schema.GroupVersionResource
	informer     cache.SharedIndexInformer
	ledger       *ledger
	registration cache.ResourceEventHandlerRegistration
}

func follow(resource schema.GroupVersionResource, informer cache.SharedIndexInformer) *followed {
	ledger := &ledger{known: map[string]metav1.Object{}, seen: map[version]bool{}, deleted: map[string]bool{}}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: ledger.added, UpdateFunc: ledger.updated, DeleteFunc: ledger.removed,
	})
	if err != nil {
		panic(err)
	}
	return &followed{resource, informer, ledger, registration}
}

func accessor(object any) metav1.Object {
	found, err := meta.Accessor(object)
	if err != nil {
		panic(err)
	}
	return found
}

func (l *ledger) fault(format string, arguments ...any) {
	l.counted.faults = append(l.counted.faults, fmt.Sprintf(format, arguments...))
}

func (l *ledger) note(object metav1.Object) {
	l.known[object.GetName()] = object
	l.seen[version{object.GetName(), object.GetResourceVersion()}] = true
}

func (l *ledger) added(object any) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	one := accessor(object)
	l.counted.adds++
	if _, has := l.known[one.GetName()]; has || l.deleted[one.GetName()] {
		l.fault("%s added again", one.GetName())
	}
	l.note(one)
}

func (l *ledger) updated(before, after any) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	old, one := accessor(before), accessor(after)
	known, has := l.known[one.GetName()]
	switch {
	case !has:
		l.fault("%s updated before it was added", one.GetName())
	case known.GetResourceVersion() != old.GetResourceVersion() || known.GetUID() != one.GetUID():
		l.fault("%s updated from %s, but %s came before", one.GetName(), old.GetResourceVersion(), known.GetResourceVersion())
	case old.GetResourceVersion() == one.GetResourceVersion():
		l.counted.resyncs++
		return
	case revision(one) < revision(old):
		l.fault("%s went back from %s to %s", one.GetName(), old.GetResourceVersion(), one.GetResourceVersion())
	}
	l.counted.updates++
	l.note(one)
}

func (l *ledger) removed(object any) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if unknown, is := object.(cache.DeletedFinalStateUnknown); is {
		object = unknown.Obj
	}
	one := accessor(object)
	l.counted.deletes++
	if _, has := l.known[one.GetName()]; !has {
		l.fault("%s deleted, but it was not there", one.GetName())
	}
	delete(l.known, one.GetName())
	l.deleted[one.GetName()] = true
}

func revision(object metav1.Object) uint64 { return number(object.GetResourceVersion()) }

func number(revision string) uint64 {
	number, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		panic(err)
	}
	return number
}

func (l *ledger) figures() figures {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	out := l.counted
	out.faults = append([]string(nil), l.counted.faults...)
	return out
}

// missed returns the acknowledged writes that no event showed. With mayRelist, a later state of the object counts as well, and an object that was
// deleted need not have been there: after the end of a watch, client-go lists again, and a list has only the last states.
func (l *ledger) missed(acknowledged *acknowledged, mayRelist bool) []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	newest := map[string]uint64{}
	for version := range l.seen {
		newest[version.name] = max(newest[version.name], number(version.revision))
	}
	var out []string
	for version := range acknowledged.written {
		isReplaced := acknowledged.deleted[version.name] || newest[version.name] > number(version.revision)
		if !l.seen[version] && !(mayRelist && isReplaced) {
			out = append(out, version.name+"@"+version.revision)
		}
	}
	for name := range acknowledged.deleted {
		_, was := newest[name]
		if !l.deleted[name] && (was || !mayRelist) {
			out = append(out, name+" deleted")
		}
	}
	return out
}

// settled waits until the informer's store equals a list, and then expects that nothing was lost and nothing repeated.
func (b *bed) settled(ctx context.Context, one *followed, acknowledged *acknowledged, mayRelist bool) (string, error) {
	list, err := b.dynamic.Resource(one.resource).Namespace("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	stored := map[version]bool{}
	for _, item := range list.Items {
		stored[version{item.GetName(), item.GetResourceVersion()}] = true
	}
	equal := func() bool {
		objects := one.informer.GetStore().List()
		for _, object := range objects {
			if o := accessor(object); !stored[version{o.GetName(), o.GetResourceVersion()}] {
				return false
			}
		}
		return len(objects) == len(stored) && len(one.ledger.missed(acknowledged, mayRelist)) == 0
	}
	err = wait(ctx, 60*time.Second, equal)
	figures, missed := one.ledger.figures(), one.ledger.missed(acknowledged, mayRelist)
	said := fmt.Sprintf("%s: %d acknowledged writes, %d added, %d updated, %d deleted, %d in the store, %d without an event of their own, %d missed",
		one.resource.Resource, len(acknowledged.written)+len(acknowledged.deleted), figures.adds, figures.updates, figures.deletes, len(stored),
		len(one.ledger.missed(acknowledged, false)), len(missed))
	if err != nil {
		return "", fmt.Errorf("%s; store has %d; missed %v", said, len(one.informer.GetStore().ListKeys()), missed[:min(len(missed), 10)])
	}
	if len(figures.faults) > 0 {
		return "", fmt.Errorf("%s; %v", said, figures.faults)
	}
	return said, nil
}
