// Package v1alpha1 is the first version of the kind Cache: it has count instead of replicas, and no tier.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"

	v1 "waypost.test/operator/v1"
)

// tierAnnotation keeps the field that this version does not have.
const tierAnnotation = "clients.example.com/tier"

// GroupVersion of the types of this package.
var GroupVersion = schema.GroupVersion{Group: "clients.example.com", Version: "v1alpha1"}

// Cache is a number of Pods behind a Service.
type Cache struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              CacheSpec      `json:"spec,omitempty"`
	Status            v1.CacheStatus `json:"status,omitempty"`
}

// CacheSpec is what the user requests.
type CacheSpec struct {
	Count int32  `json:"count"`
	Image string `json:"image,omitempty"`
}

// ConvertTo makes the stored version.
func (c *Cache) ConvertTo(hub conversion.Hub) error {
	out, from := hub.(*v1.Cache), c.DeepCopyObject().(*Cache)
	out.ObjectMeta, out.Status = from.ObjectMeta, from.Status
	out.Spec = v1.CacheSpec{Replicas: from.Spec.Count, Image: from.Spec.Image, Tier: from.Annotations[tierAnnotation]}
	delete(out.Annotations, tierAnnotation)
	return nil
}

// ConvertFrom makes this version.
func (c *Cache) ConvertFrom(hub conversion.Hub) error {
	from := hub.DeepCopyObject().(*v1.Cache)
	c.ObjectMeta, c.Status = from.ObjectMeta, from.Status
	c.Spec = CacheSpec{Count: from.Spec.Replicas, Image: from.Spec.Image}
	if from.Spec.Tier != "" {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, tierAnnotation, from.Spec.Tier)
	}
	return nil
}

// DeepCopyObject copies a Cache.
func (c *Cache) DeepCopyObject() runtime.Object {
	out := *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = append([]metav1.Condition(nil), c.Status.Conditions...)
	return &out
}

// AddToScheme registers the types of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Cache{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
