// Package v1 is the stored version of the kind Cache.
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion of the types of this package.
var GroupVersion = schema.GroupVersion{Group: "clients.example.com", Version: "v1"}

// Cache is a number of Pods behind a Service.
type Cache struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              CacheSpec   `json:"spec,omitempty"`
	Status            CacheStatus `json:"status,omitempty"`
}

// CacheSpec is what the user requests.
type CacheSpec struct {
	Replicas int32  `json:"replicas"`
	Image    string `json:"image,omitempty"`
	Tier     string `json:"tier,omitempty"`
}

// CacheStatus is what the operator reports.
type CacheStatus struct {
	ReadyReplicas      int32              `json:"readyReplicas,omitempty"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// CacheList is a list of Caches.
type CacheList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Cache `json:"items"`
}

// Hub marks this version as the one that others are converted to and from.
func (*Cache) Hub() {}

// DeepCopyObject copies a Cache.
func (c *Cache) DeepCopyObject() runtime.Object {
	out := *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = nil
	for _, condition := range c.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, *condition.DeepCopy())
	}
	return &out
}

// DeepCopyObject copies a CacheList.
func (l *CacheList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Cache, len(l.Items))
	for index := range l.Items {
		out.Items[index] = *l.Items[index].DeepCopyObject().(*Cache)
	}
	return &out
}

// AddToScheme registers the types of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Cache{}, &CacheList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
