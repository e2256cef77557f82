package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// define creates the kind of the custom resources and waits until it is established.
func (b *bed) define(ctx context.Context) error {
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": "widgets.clients.example.com"},
		"spec": map[string]any{
			"group": "clients.example.com",
			"scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object",
					"properties": map[string]any{"data": map[string]any{
						"type": "object", "additionalProperties": map[string]any{"type": "string"},
					}},
				}},
			}},
		},
	}}
	client := b.dynamic.Resource(definitions)
	if _, err := client.Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return err
	}
	err := wait(ctx, 10*time.Second, func() bool {
		found, err := client.Get(ctx, definition.GetName(), metav1.GetOptions{})
		return err == nil && hasCondition(found, "Established")
	})
	if err != nil {
		return fmt.Errorf("not established: %w", err)
	}
	return nil
}

func hasCondition(object *unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, one := range conditions {
		if condition, is := one.(map[string]any); is && condition["type"] == kind && condition["status"] == "True" {
			return true
		}
	}
	return false
}
