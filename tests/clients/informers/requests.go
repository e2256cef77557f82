package main

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
)

// counts says how informers read collections.
type counts struct{ lists, streamedLists, watches int }

func (c counts) minus(other counts) counts {
	return counts{c.lists - other.lists, c.streamedLists - other.streamedLists, c.watches - other.watches}
}

func (c counts) String() string {
	return fmt.Sprintf("%d lists, %d streamed lists, %d watches", c.lists, c.streamedLists, c.watches)
}

// requests counts successful reads of collections.
type requests struct {
	mutex   sync.Mutex
	counts  counts
	streams map[string]int // By path: watches and streamed lists.
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil && response.StatusCode == http.StatusOK {
			r.count(request)
		}
		return response, err
	})
}

func (r *requests) count(request *http.Request) {
	path, query := request.URL.Path, request.URL.Query()
	if request.Method != http.MethodGet || !strings.HasSuffix(path, "/configmaps") && !strings.HasSuffix(path, "/widgets") {
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if query.Get("watch") != "" {
		r.streams[path]++
	}
	switch {
	case query.Get("watch") == "":
		r.counts.lists++
	case query.Get("sendInitialEvents") == "true":
		r.counts.streamedLists++
	default:
		r.counts.watches++
	}
}

func (r *requests) snapshot() counts {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.counts
}

func (r *requests) opened() map[string]int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return maps.Clone(r.streams)
}

// reopened says whether each collection that was watched before is watched by another request.
func (r *requests) reopened(before map[string]int) bool {
	for path, count := range r.opened() {
		if count <= before[path] {
			return false
		}
	}
	return true
}

func (r *requests) since(before counts) counts { return r.snapshot().minus(before) }
