package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const leaseDuration = 6 * time.Second

// leaders records who leads. Two at the same time are a fault.
type leaders struct {
	mutex   sync.Mutex
	current string
	changes int
	faults  []string
}

func (l *leaders) begin(name string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.current != "" {
		l.faults = append(l.faults, fmt.Sprintf("%s leads while %s does", name, l.current))
	}
	l.current = name
	l.changes++
}

func (l *leaders) end(name string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.current == name {
		l.current = ""
	}
}

func (l *leaders) is(name string) func() bool {
	return func() bool {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		return l.current == name
	}
}

// candidate runs for the Lease until its context ends. OnStartedLeading of the next one comes after the Lease expired or was released.
func (b *bed) candidate(ctx context.Context, name string, isReleased bool, leaders *leaders) (context.CancelFunc, error) {
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, "default", "clients",
		resourcelock.ResourceLockConfig{Identity: name}, b.config, leaseDuration)
	if err != nil {
		return nil, err
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: 4 * time.Second, RetryPeriod: 500 * time.Millisecond, ReleaseOnCancel: isReleased,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leaders.begin(name) },
			OnStoppedLeading: func() { leaders.end(name) },
		},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	go elector.Run(ctx)
	return cancel, nil
}

// election follows a Lease through a restart of the server, a leader that disappears and a leader that releases.
func (b *bed) election(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	leaders := &leaders{}
	stopFirst, err := b.candidate(ctx, "first", false, leaders)
	if err != nil {
		return "", err
	}
	if err := wait(ctx, 20*time.Second, leaders.is("first")); err != nil {
		return "", fmt.Errorf("first did not lead: %w", err)
	}
	stopSecond, err := b.candidate(ctx, "second", true, leaders)
	if err != nil {
		return "", err
	}
	b.server.kill()
	if err := b.server.start(ctx); err != nil {
		return "", err
	}
	// Had the Lease been lost, second would hold it after one duration.
	held := time.Now().Add(leaseDuration + 2*time.Second)
	_ = wait(ctx, leaseDuration+2*time.Second, func() bool { return !leaders.is("first")() })
	if time.Now().Before(held) {
		return "", fmt.Errorf("leadership was lost in a restart of the server")
	}
	gone := time.Now()
	stopFirst()
	if err := wait(ctx, 30*time.Second, leaders.is("second")); err != nil {
		return "", fmt.Errorf("second did not lead: %w", err)
	}
	expired := time.Since(gone)
	if _, err := b.candidate(ctx, "third", false, leaders); err != nil {
		return "", err
	}
	// Between two renewals: one that is canceled may be committed while the Lease is released, which is then a conflict.
	time.Sleep(250 * time.Millisecond)
	gone = time.Now()
	stopSecond()
	if err := wait(ctx, 30*time.Second, leaders.is("third")); err != nil {
		return "", fmt.Errorf("third did not lead: %w", err)
	}
	released := time.Since(gone)
	if len(leaders.faults) > 0 || leaders.changes != 3 {
		return "", fmt.Errorf("%d leaders, %v", leaders.changes, leaders.faults)
	}
	return fmt.Sprintf("kept over a kill; taken over after expiry in %.1f s, after release in %.1f s", expired.Seconds(), released.Seconds()), nil
}
