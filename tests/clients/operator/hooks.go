package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "waypost.test/operator/v1"
)

const mostReplicas = 5

// hooks are the admission webhooks of Caches.
type hooks struct{}

// Default fills in what the user left out.
func (*hooks) Default(_ context.Context, cache *v1.Cache) error {
	if cache.Spec.Image == "" {
		cache.Spec.Image = "host"
	}
	if cache.Spec.Tier == "" {
		cache.Spec.Tier = "standard"
	}
	return nil
}

// ValidateCreate refuses too many replicas.
func (*hooks) ValidateCreate(_ context.Context, cache *v1.Cache) (admission.Warnings, error) {
	if cache.Spec.Replicas <= mostReplicas {
		return nil, nil
	}
	path := field.NewPath("spec", "replicas")
	refusal := field.Invalid(path, cache.Spec.Replicas, fmt.Sprintf("must be at most %d", mostReplicas))
	return nil, apierrors.NewInvalid(schema.GroupKind{Group: v1.GroupVersion.Group, Kind: "Cache"}, cache.Name, field.ErrorList{refusal})
}

// ValidateUpdate warns of changed tiers besides.
func (h *hooks) ValidateUpdate(ctx context.Context, before, after *v1.Cache) (admission.Warnings, error) {
	var warnings admission.Warnings
	if before.Spec.Tier != after.Spec.Tier {
		warnings = append(warnings, "spec.tier: a changed tier restarts all Pods")
	}
	_, err := h.ValidateCreate(ctx, after)
	return warnings, err
}

// ValidateDelete refuses protected Caches.
func (*hooks) ValidateDelete(_ context.Context, cache *v1.Cache) (admission.Warnings, error) {
	if cache.Labels["protected"] == "true" {
		return nil, fmt.Errorf("cache %s is protected", cache.Name)
	}
	return nil, nil
}
