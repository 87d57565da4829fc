// The controller on controller-runtime, as kubebuilder's book shows it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

type Spec struct {
	Html      string `json:"html,omitempty"`
	Stamp     int64  `json:"stamp,omitempty"`
	Mode      string `json:"mode,omitempty"`
	SleepMs   int64  `json:"sleepMs,omitempty"`
	RequeueMs int64  `json:"requeueMs,omitempty"`
}
type Status struct {
	Stamp    int64 `json:"stamp"`
	Failures int64 `json:"failures"`
}
type Website struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec    `json:"spec,omitempty"`
	Status            *Status `json:"status,omitempty"`
}
type WebsiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Website `json:"items"`
}

func (w *Website) DeepCopy() *Website {
	c := *w
	w.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	if w.Status != nil {
		s := *w.Status
		c.Status = &s
	}
	return &c
}
func (w *Website) DeepCopyObject() runtime.Object { return w.DeepCopy() }
func (l *WebsiteList) DeepCopyObject() runtime.Object {
	c := WebsiteList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopy())
	}
	return &c
}

const finalizer = "trial.dev/cleanup"

type rec struct {
	sync.Mutex
	lines []string
}

func (r *rec) note(began int64, name string, stamp int64, err error) {
	end := "ok"
	if err != nil {
		end = "err"
	}
	r.Lock()
	r.lines = append(r.lines, fmt.Sprintf("%d,%s,%d,%s,%d", began, name, stamp, end, time.Now().UnixMicro()))
	r.Unlock()
}

type reconciler struct {
	client.Client
	rec *rec
}

func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var site Website
	if err := r.Get(ctx, req.NamespacedName, &site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	began, stamp := time.Now().UnixMicro(), site.Spec.Stamp
	res, err := r.reconcile(ctx, &site)
	r.rec.note(began, req.Name, stamp, err)
	return res, err
}

func (r *reconciler) reconcile(ctx context.Context, site *Website) (ctrl.Result, error) {
	if !site.DeletionTimestamp.IsZero() {
		if controllerutil.ContainsFinalizer(site, finalizer) {
			child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: site.Name + "-html", Namespace: site.Namespace}}
			if err := r.Delete(ctx, child); err != nil && !apierrors.IsNotFound(err) {
				return ctrl.Result{}, err
			}
			old := site.DeepCopy()
			controllerutil.RemoveFinalizer(site, finalizer)
			return ctrl.Result{}, r.Patch(ctx, site, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
		}
		return ctrl.Result{}, nil
	}
	if !controllerutil.ContainsFinalizer(site, finalizer) {
		old := site.DeepCopy()
		controllerutil.AddFinalizer(site, finalizer)
		return ctrl.Result{}, r.Patch(ctx, site, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
	}
	switch site.Spec.Mode {
	case "fail":
		return ctrl.Result{}, errors.New("this site is poison")
	case "fail-status":
		old := site.DeepCopy()
		n := int64(1)
		if site.Status != nil {
			n += site.Status.Failures
		}
		site.Status = &Status{Failures: n}
		if err := r.Status().Patch(ctx, site, client.MergeFrom(old)); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, errors.New("this site is poison")
	case "panic":
		panic("a reconciler panics")
	case "hang":
		<-ctx.Done()
		return ctrl.Result{}, ctx.Err()
	}
	if site.Spec.SleepMs > 0 {
		time.Sleep(time.Duration(site.Spec.SleepMs) * time.Millisecond)
	}
	child := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": site.Name + "-html", "namespace": site.Namespace},
		"data":     map[string]any{"index.html": site.Spec.Html},
	}}
	if err := ctrl.SetControllerReference(site, child, r.Scheme()); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.Apply(ctx, client.ApplyConfigurationFromUnstructured(child), client.ForceOwnership, client.FieldOwner("website")); err != nil {
		return ctrl.Result{}, err
	}
	if site.Status == nil || *site.Status != (Status{Stamp: site.Spec.Stamp}) {
		old := site.DeepCopy()
		site.Status = &Status{Stamp: site.Spec.Stamp}
		if err := r.Status().Patch(ctx, site, client.MergeFrom(old)); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: time.Duration(site.Spec.RequeueMs) * time.Millisecond}, nil
}

func main() {
	ctrl.SetLogger(zap.New())
	scheme := runtime.NewScheme()
	check(clientgoscheme.AddToScheme(scheme))
	gv := schema.GroupVersion{Group: "trial.dev", Version: "v1"}
	scheme.AddKnownTypes(gv, &Website{}, &WebsiteList{})
	metav1.AddToGroupVersion(scheme, gv)
	url := os.Getenv("KAPI")
	conc, _ := strconv.Atoi(os.Getenv("CONC"))
	if conc == 0 {
		conc = 16
	}
	grace := 30 * time.Second
	caches := cache.Options{DefaultNamespaces: map[string]cache.Config{os.Getenv("NS"): {}}}
	if os.Getenv("TRIM") != "" {
		caches.DefaultTransform = cache.TransformStripManagedFields()
	}
	mgr, err := ctrl.NewManager(&rest.Config{Host: url, BearerToken: os.Getenv("TOKEN"), QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		manager.Options{Scheme: scheme, GracefulShutdownTimeout: &grace, Metrics: server.Options{BindAddress: "0"}, Cache: caches})
	check(err)
	r := &reconciler{Client: mgr.GetClient(), rec: &rec{}}
	check(ctrl.NewControllerManagedBy(mgr).For(&Website{}).Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: conc}).Complete(r))
	err = mgr.Start(ctrl.SetupSignalHandler())
	if path := os.Getenv("REC"); path != "" {
		f, _ := os.Create(path)
		fmt.Fprintln(f, "began,name,stamp,end,ended")
		for _, l := range r.rec.lines {
			fmt.Fprintln(f, l)
		}
		f.Close()
	}
	check(err)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
