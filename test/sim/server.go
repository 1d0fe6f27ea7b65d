package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// kind is what the server stores.
type kind string

const (
	kindRun    kind = "AgentRun"
	kindModel  kind = "Model"
	kindPolicy kind = "ToolPolicy"
	kindMap    kind = "ConfigMap"
	kindLease  kind = "Lease"
)

func kindOf(object client.Object) kind {
	switch object.(type) {
	case *v1alpha1.AgentRun:
		return kindRun
	case *v1alpha1.Model:
		return kindModel
	case *v1alpha1.ToolPolicy:
		return kindPolicy
	case *corev1.ConfigMap:
		return kindMap
	case *coordinationv1.Lease:
		return kindLease
	default:
		panic(fmt.Sprintf("%T is not simulated", object))
	}
}

func (k kind) resource() schema.GroupResource { return schema.GroupResource{Resource: string(k)} }

// address is a kind and a name.
type address struct {
	kind kind
	types.NamespacedName
}

func addressOf(object client.Object) address {
	return address{kindOf(object), client.ObjectKeyFromObject(object)}
}

// version is an object as it was from a moment on, nil once it was gone.
type version struct {
	at     time.Duration
	object client.Object
}

// server is the API server and its storage: one order of writes, each of which happens
// at once or not at all.
type server struct {
	w        *world
	objects  map[address]client.Object
	past     map[address][]version
	revision int64
	// away is until when nobody reaches the server.
	away time.Duration
	// busy is how, and until when, it answers most calls with an error.
	busy struct {
		fault Fault
		until time.Duration
	}
	// quotaEnds is until when it stores no new ConfigMap.
	quotaEnds time.Duration
	// ending are the namespaces that are being deleted.
	ending map[string]bool
}

// Those who write besides the operators and people.
const (
	collector           = "collector"
	namespaceController = "namespace controller"
	vandal              = "vandal"
)

func newServer(w *world) *server {
	return &server{w: w, objects: map[address]client.Object{}, past: map[address][]version{}, ending: map[string]bool{}}
}

func clone[T client.Object](object T) T { return object.DeepCopyObject().(T) }

// answers is the fault of a busy server, none for one that is not.
func (s *server) answers(known []Fault) Fault {
	if s.busy.until <= s.w.elapsed || !s.w.chance(0.7) {
		return FaultNone
	}
	return pick(s.w, known, s.busy.fault)
}

// get returns a copy.
func (s *server) get(at address) (client.Object, error) {
	found, ok := s.objects[at]
	if !ok {
		return nil, apierrors.NewNotFound(at.kind.resource(), at.Name)
	}
	return clone(found), nil
}

// list returns copies of every object of a kind, by name.
func (s *server) list(k kind) []client.Object {
	return sortedObjects(s.objects, k)
}

func sortedObjects(objects map[address]client.Object, k kind) []client.Object {
	var out []client.Object
	for at, object := range objects {
		if at.kind == k {
			out = append(out, clone(object))
		}
	}
	slices.SortFunc(out, func(a, b client.Object) int {
		return cmp.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return out
}

// put stores a new version and tells everybody who watches.
func (s *server) put(by string, object client.Object) {
	s.revision++
	if k := kindOf(object); k == kindRun || k == kindMap {
		s.w.writes++
	}
	object.SetResourceVersion(strconv.FormatInt(s.revision, 10))
	at := addressOf(object)
	s.objects[at] = clone(object)
	s.remember(at, s.objects[at])
	s.w.check.stored(by, at, s.objects[at])
	s.w.announce(by, at, s.objects[at])
}

func (s *server) remove(by string, at address) {
	gone := s.objects[at]
	delete(s.objects, at)
	s.revision++
	s.remember(at, nil)
	s.w.note(by, "%s %s is gone", at.kind, at.Name)
	s.w.check.removed(by, at, gone)
	s.w.announce(by, at, nil)
	if at.kind == kindRun {
		s.collect(gone.GetUID())
	}
}

func (s *server) remember(at address, object client.Object) {
	if at.kind == kindMap || at.kind == kindLease {
		return
	}
	s.past[at] = append(s.past[at], version{s.w.elapsed, object})
}

// collect is the garbage collector: what a run owned is deleted some time later.
func (s *server) collect(owner types.UID) {
	s.w.after(s.w.between(10*time.Millisecond, 3*time.Second), nil, func() {
		for _, object := range s.list(kindMap) {
			for _, ref := range object.GetOwnerReferences() {
				if ref.UID == owner {
					_ = s.delete(collector, addressOf(object), nil)
				}
			}
		}
	})
}

// create stores a new object.
func (s *server) create(by string, object client.Object) error {
	at := addressOf(object)
	if _, exists := s.objects[at]; exists {
		return apierrors.NewAlreadyExists(at.kind.resource(), at.Name)
	}
	if object.GetResourceVersion() != "" {
		return apierrors.NewBadRequest("resourceVersion must not be set on objects to be created")
	}
	if err := s.admit(by, object); err != nil {
		return err
	}
	stored := clone(object)
	s.w.serial++
	stored.SetUID(types.UID(fmt.Sprintf("uid-%04d", s.w.serial)))
	stored.SetCreationTimestamp(metav1.NewTime(begin.Add(s.w.elapsed).Truncate(time.Second)))
	stored.SetGeneration(1)
	if run, ok := stored.(*v1alpha1.AgentRun); ok {
		run.Status = v1alpha1.AgentRunStatus{}
		defaultRun(run)
	}
	s.put(by, stored)
	give(object, s.objects[at])
	for _, ref := range stored.GetOwnerReferences() {
		if s.w.check.run(ref.UID).gone {
			s.collect(ref.UID)
		}
	}
	return nil
}

// admit refuses new objects in a namespace that ends, and ConfigMaps beyond a quota.
func (s *server) admit(by string, object client.Object) error {
	at := addressOf(object)
	switch {
	case s.ending[at.Namespace]:
		err := apierrors.NewForbidden(at.kind.resource(), at.Name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", at.Namespace))
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace"})
		return err
	case at.kind == kindMap && s.quotaEnds > s.w.elapsed:
		s.w.check.refused(by, object)
		return apierrors.NewForbidden(at.kind.resource(), at.Name, fmt.Errorf("exceeded quota: objects, requested: count/configmaps=1, used: 10, limited: 10"))
	default:
		return nil
	}
}

// give copies what the server stored into the object of the caller.
func give(into, from client.Object) {
	switch into := into.(type) {
	case *v1alpha1.AgentRun:
		from.(*v1alpha1.AgentRun).DeepCopyInto(into)
	case *v1alpha1.Model:
		from.(*v1alpha1.Model).DeepCopyInto(into)
	case *v1alpha1.ToolPolicy:
		from.(*v1alpha1.ToolPolicy).DeepCopyInto(into)
	case *corev1.ConfigMap:
		from.(*corev1.ConfigMap).DeepCopyInto(into)
	case *coordinationv1.Lease:
		from.(*coordinationv1.Lease).DeepCopyInto(into)
	}
}

// current finds the object that a write is about, and checks its preconditions.
func (s *server) current(at address, uid types.UID, version string) (client.Object, error) {
	now, ok := s.objects[at]
	switch {
	case !ok:
		return nil, apierrors.NewNotFound(at.kind.resource(), at.Name)
	case uid != "" && uid != now.GetUID():
		return nil, apierrors.NewConflict(at.kind.resource(), at.Name, fmt.Errorf("the UID in the precondition (%s) is not that of the object (%s)", uid, now.GetUID()))
	case version != "" && version != now.GetResourceVersion():
		return nil, apierrors.NewConflict(at.kind.resource(), at.Name, fmt.Errorf("the object has been modified"))
	}
	return now, nil
}

// update replaces everything but status. Without a resourceVersion it is unconditional,
// as it is for the real server's own kinds.
func (s *server) update(by string, object client.Object) error {
	at := addressOf(object)
	now, err := s.current(at, object.GetUID(), object.GetResourceVersion())
	if err != nil {
		return err
	}
	next := clone(object)
	next.SetUID(now.GetUID())
	next.SetCreationTimestamp(now.GetCreationTimestamp())
	next.SetDeletionTimestamp(now.GetDeletionTimestamp())
	next.SetGeneration(now.GetGeneration())
	if err := checkUpdate(at, now, next); err != nil {
		return err
	}
	return s.replace(by, at, now, next, object)
}

// replace stores what an update made of an object, or removes the object when that took
// away its last finalizer. A write that changes nothing makes no new version.
func (s *server) replace(by string, at address, now, next, caller client.Object) error {
	next.SetResourceVersion(now.GetResourceVersion())
	switch {
	case next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0:
		give(caller, next)
		s.remove(by, at)
		return nil
	case !equality.Semantic.DeepEqual(now, next):
		s.put(by, next)
	}
	give(caller, s.objects[at])
	return nil
}

// updateStatus replaces status and nothing else.
func (s *server) updateStatus(by string, run *v1alpha1.AgentRun) error {
	at := addressOf(run)
	found, err := s.current(at, run.UID, run.ResourceVersion)
	if err != nil {
		return err
	}
	now := found.(*v1alpha1.AgentRun)
	next := clone(now)
	next.Status = wire(run.Status)
	if err := checkStatus(now, next); err != nil {
		s.w.check.refusedStatus(by, now, next, err)
		return err
	}
	if now.Status.Journal == nil && next.Status.Journal != nil && s.w.chance(s.w.faults.rates.destroyed) {
		// Before every cache knows how long the journal is.
		s.w.after(s.w.between(0, 300*time.Millisecond), nil, func() {
			if found, err := s.get(at); err == nil && found.GetUID() == now.UID {
				s.w.destroy(found.(*v1alpha1.AgentRun))
			}
		})
	}
	return s.replace(by, at, now, next, run)
}

// wire is what is left of a status after it went through JSON: times of whole seconds.
func wire(status v1alpha1.AgentRunStatus) v1alpha1.AgentRunStatus {
	data, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	var out v1alpha1.AgentRunStatus
	if err := json.Unmarshal(data, &out); err != nil {
		panic(err)
	}
	return out
}

// patch applies a merge patch to an object's metadata and spec.
func (s *server) patch(by string, object client.Object, data []byte) error {
	at := addressOf(object)
	now, err := s.current(at, "", "")
	if err != nil {
		return err
	}
	before, err := json.Marshal(now)
	if err != nil {
		return err
	}
	after, err := jsonpatch.MergePatch(before, data)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	next := &v1alpha1.AgentRun{}
	if err := json.Unmarshal(after, next); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := s.update(by, next); err != nil {
		return err
	}
	give(object, next)
	return nil
}

// delete removes an object, or marks it while finalizers hold it.
func (s *server) delete(by string, at address, preconditions *metav1.Preconditions) error {
	uid, version := types.UID(""), ""
	if preconditions != nil {
		if preconditions.UID != nil {
			uid = *preconditions.UID
		}
		if preconditions.ResourceVersion != nil {
			version = *preconditions.ResourceVersion
		}
	}
	now, err := s.current(at, uid, version)
	if err != nil {
		return err
	}
	if len(now.GetFinalizers()) == 0 {
		s.remove(by, at)
		return nil
	}
	if now.GetDeletionTimestamp() == nil {
		next := clone(now)
		deleted := metav1.NewTime(begin.Add(s.w.elapsed).Truncate(time.Second))
		next.SetDeletionTimestamp(&deleted)
		next.SetGeneration(now.GetGeneration() + 1)
		s.w.note(by, "%s %s is being deleted", at.kind, at.Name)
		s.put(by, next)
	}
	return nil
}

func notFound(at address) error { return apierrors.NewNotFound(at.kind.resource(), at.Name) }
