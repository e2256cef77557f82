package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "waypost.test/operator/v1"
)

const (
	finalizer = "clients.example.com/record"
	// registry is the namespace with a record of each Cache. No owner reference leads there: the finalizer deletes records.
	registry = "cache-registry"
)

// reconciler makes a Deployment, a Service and a record of each Cache.
type reconciler struct {
	client.Client
	scheme *runtime.Scheme
	events record.EventRecorder
}

func (r *reconciler) setUp(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).For(&v1.Cache{}).Owns(&appsv1.Deployment{}).Owns(&corev1.Service{}).Complete(r)
}

// Reconcile brings the cluster to what a Cache requests.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cache := &v1.Cache{}
	if err := r.Get(ctx, request.NamespacedName, cache); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	entry := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: registry, Name: cache.Namespace + "." + cache.Name}}
	if !cache.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.finalize(ctx, cache, entry)
	}
	if controllerutil.AddFinalizer(cache, finalizer) {
		if err := r.Update(ctx, cache); err != nil {
			return ctrl.Result{}, ignoreConflict(err)
		}
		r.events.Event(cache, corev1.EventTypeNormal, "Adopted", "finalizer added")
	}
	if err := r.Create(ctx, entry); err != nil && !apierrors.IsAlreadyExists(err) {
		return ctrl.Result{}, err
	}
	deployment, err := r.makeOwned(ctx, cache)
	if err != nil {
		return ctrl.Result{}, ignoreConflict(err)
	}
	return ctrl.Result{}, ignoreConflict(r.report(ctx, cache, deployment))
}

func (r *reconciler) finalize(ctx context.Context, cache *v1.Cache, entry *corev1.ConfigMap) error {
	if !controllerutil.ContainsFinalizer(cache, finalizer) {
		return nil
	}
	if err := client.IgnoreNotFound(r.Delete(ctx, entry)); err != nil {
		return err
	}
	controllerutil.RemoveFinalizer(cache, finalizer)
	return ignoreConflict(r.Update(ctx, cache))
}

// makeOwned creates or updates the objects that are deleted with the Cache.
func (r *reconciler) makeOwned(ctx context.Context, cache *v1.Cache) (*appsv1.Deployment, error) {
	labels := map[string]string{"cache": cache.Name}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: cache.Namespace, Name: cache.Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, service, func() error {
		service.Spec.Selector = labels
		service.Spec.Ports = []corev1.ServicePort{{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: 80}}
		return controllerutil.SetControllerReference(cache, service, r.scheme)
	}); err != nil {
		return nil, err
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cache.Namespace, Name: cache.Name}}
	_, err := controllerutil.CreateOrPatch(ctx, r.Client, deployment, func() error {
		deployment.Spec.Replicas = &cache.Spec.Replicas
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = map[string]string{"cache": cache.Name, "tier": cache.Spec.Tier}
		if len(deployment.Spec.Template.Spec.Containers) == 0 {
			deployment.Spec.Template.Spec.Containers = make([]corev1.Container, 1)
		}
		container := &deployment.Spec.Template.Spec.Containers[0]
		container.Name, container.Image, container.Command = "cache", cache.Spec.Image, []string{"sleep", "infinity"}
		return controllerutil.SetControllerReference(cache, deployment, r.scheme)
	})
	return deployment, err
}

// report writes the status.
func (r *reconciler) report(ctx context.Context, cache *v1.Cache, deployment *appsv1.Deployment) error {
	before := cache.DeepCopyObject().(*v1.Cache)
	condition := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Waiting", ObservedGeneration: cache.Generation}
	if deployment.Status.ReadyReplicas == cache.Spec.Replicas && deployment.Status.UpdatedReplicas == cache.Spec.Replicas {
		condition.Status, condition.Reason = metav1.ConditionTrue, "AllReady"
	}
	meta.SetStatusCondition(&cache.Status.Conditions, condition)
	cache.Status.ReadyReplicas, cache.Status.ObservedGeneration = deployment.Status.ReadyReplicas, cache.Generation
	return r.Status().Patch(ctx, cache, client.MergeFrom(before))
}

// ignoreConflict leaves an object that changed since it was read to the reconcile that its change causes.
func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}
