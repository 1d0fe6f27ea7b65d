// Package store keeps journals in ConfigMaps beside their runs.
//
// A journal is a row of segments with predictable names. The next event has exactly one
// legal place: the last segment while it is open, else the create of the next number.
// Whoever loses the race for that place has lost it, whatever the answer looked like:
// an unclear answer is settled by reading what is there.
package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/canary"
	"github.com/pawl-run/pawl/internal/journal"
)

const (
	// segmentEvents and segmentBytes say when a segment is full. Creating small objects
	// costs about half of growing large ones.
	segmentEvents = 8
	segmentBytes  = 16 << 10
	// maxSegmentBytes keeps a segment below what a ConfigMap may hold.
	maxSegmentBytes = 900 << 10
	// annotationWrite holds the nonce of the newest write, by which a writer that got
	// no clear answer recognises its own.
	annotationWrite = "pawl.run/write"
)

// Store reads and appends. Its client must read ConfigMaps live, never from a cache.
type Store struct {
	client client.Client
	nonce  func() string
}

// New returns a store. Nonce must never return the same string twice, in this process
// or any other.
func New(live client.Client, nonce func() string) *Store {
	return &Store{client: live, nonce: nonce}
}

// Log is a journal as it was last read or written: the place where the next event goes.
type Log struct {
	run      *v1alpha1.AgentRun
	tail     *corev1.ConfigMap
	segments int32
	events   int
	bytes    int
	// held are the numbers of sealed segments that still have the finalizer.
	held []int32
}

// Segments is the number of ConfigMaps.
func (l *Log) Segments() int32 { return l.segments }

// SegmentName is the name of a run's n-th segment, counted from 1.
func SegmentName(uid string, n int32) string {
	return fmt.Sprintf("pawl-journal-%s-%04d", uid, n)
}

// Load reads a run's whole journal, live and by name.
func (s *Store) Load(ctx context.Context, run *v1alpha1.AgentRun) (*Log, []journal.Record, error) {
	log := &Log{run: run}
	var records []journal.Record
	for log.open() == nil {
		segment := &corev1.ConfigMap{}
		name := SegmentName(string(run.UID), log.segments+1)
		err := s.client.Get(ctx, client.ObjectKey{Namespace: run.Namespace, Name: name}, segment)
		if apierrors.IsNotFound(err) {
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reading journal segment %s: %w", name, err)
		}
		read, err := parseSegment(run, segment, int64(len(records)))
		if err != nil {
			return nil, nil, err
		}
		records = append(records, read...)
		log.segments++
		log.setTail(segment, read)
		if log.open() == nil && controllerutil.ContainsFinalizer(segment, v1alpha1.FinalizerEffects) {
			log.held = append(log.held, log.segments)
		}
	}
	return log, records, nil
}

// open is the last segment while it may grow.
func (l *Log) open() *corev1.ConfigMap {
	if l.tail == nil || ptr.Deref(l.tail.Immutable, false) {
		return nil
	}
	return l.tail
}

func (l *Log) setTail(segment *corev1.ConfigMap, records []journal.Record) {
	l.tail, l.events, l.bytes = segment, len(records), 0
	for _, record := range records {
		l.bytes += record.Size()
	}
}

// Append commits records, in order. They share one write unless together they are
// larger than a segment may be. Hold says that after them some effect is under way or
// unknown: the segment that says so stays open, and a finalizer keeps it from being
// deleted, until an append that does not hold. After an error the log must be loaded anew.
func (s *Store) Append(ctx context.Context, log *Log, records []journal.Record, hold bool) error {
	for len(records) > 0 {
		n, err := s.appendSome(ctx, log, records, hold)
		if err != nil {
			return err
		}
		records = records[n:]
	}
	if hold {
		return nil
	}
	return s.releaseSealed(ctx, log)
}

// Release takes the finalizer off every segment, whatever is still unknown.
func (s *Store) Release(ctx context.Context, log *Log) error {
	if open := log.open(); open != nil && controllerutil.ContainsFinalizer(open, v1alpha1.FinalizerEffects) {
		if _, err := s.unhold(ctx, log.run, log.segments); err != nil {
			return err
		}
	}
	return s.releaseSealed(ctx, log)
}

// missesToEnd is how many segments in a row may be missing before ReleaseAll stops.
const missesToEnd = 8

// ReleaseAll takes the finalizer off the segments of a journal that can't be read, by
// name: at least as many as are known, and those that follow closely.
func (s *Store) ReleaseAll(ctx context.Context, run *v1alpha1.AgentRun, known int32) error {
	for n, misses := int32(1), 0; n <= known || misses < missesToEnd; n++ {
		there, err := s.unhold(ctx, run, n)
		if err != nil {
			return err
		}
		if misses++; there {
			misses = 0
		}
	}
	return nil
}

func (s *Store) releaseSealed(ctx context.Context, log *Log) error {
	for _, n := range log.held {
		if _, err := s.unhold(ctx, log.run, n); err != nil {
			return err
		}
	}
	log.held = nil
	return nil
}

// unhold takes the finalizer off one segment, and says whether there is such a segment.
func (s *Store) unhold(ctx context.Context, run *v1alpha1.AgentRun, n int32) (bool, error) {
	segment := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: run.Namespace, Name: SegmentName(string(run.UID), n)}
	if err := s.client.Get(ctx, key, segment); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if !controllerutil.RemoveFinalizer(segment, v1alpha1.FinalizerEffects) {
		return true, nil
	}
	if err := s.client.Update(ctx, segment); err != nil && !apierrors.IsNotFound(err) {
		return true, fmt.Errorf("releasing journal segment %s: %w", key.Name, err)
	}
	return true, nil
}

// appendSome writes as many records as the next place holds.
func (s *Store) appendSome(ctx context.Context, log *Log, records []journal.Record, hold bool) (int, error) {
	open := log.open()
	if canary.Is(canary.TwoTails) {
		open = nil
	}
	events, size := 0, 0
	if open != nil {
		events, size = log.events, log.bytes
	}
	n, size := fit(records, size, open == nil)
	segment := nextSegment(log, open)
	for _, record := range records[:n] {
		put(segment, record)
	}
	events += n
	// A segment that can't take the next record is sealed with what it has.
	full := events >= segmentEvents || size >= segmentBytes
	if n < len(records) || (full && !hold) {
		segment.Immutable = ptr.To(true)
	}
	if hold {
		controllerutil.AddFinalizer(segment, v1alpha1.FinalizerEffects)
	} else {
		controllerutil.RemoveFinalizer(segment, v1alpha1.FinalizerEffects)
	}
	written, err := s.write(ctx, segment, open == nil)
	if err != nil {
		return 0, err
	}
	if open == nil {
		log.segments++
	}
	log.tail, log.events, log.bytes = written, events, size
	if hold && log.open() == nil {
		log.held = append(log.held, log.segments)
	}
	return n, nil
}

// fit says how many records go into a segment, and its size with them. A segment that is
// new takes one of any size.
func fit(records []journal.Record, size int, fresh bool) (int, int) {
	n := 0
	for n < len(records) && (n == 0 && fresh || size+records[n].Size() <= maxSegmentBytes) {
		size += records[n].Size()
		n++
	}
	return n, size
}

func nextSegment(log *Log, open *corev1.ConfigMap) *corev1.ConfigMap {
	if open != nil {
		return open.DeepCopy()
	}
	run := log.run
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace:       run.Namespace,
		Name:            SegmentName(string(run.UID), log.segments+1),
		Labels:          Labels(run.Name, string(run.UID)),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(run, v1alpha1.GroupVersion.WithKind("AgentRun"))},
	}}
}

func put(segment *corev1.ConfigMap, record journal.Record) {
	if segment.Data == nil {
		segment.Data = map[string]string{}
	}
	segment.Data[eventKey(record.Event.Seq)] = string(record.Bytes)
	if len(record.Part) > 0 {
		if segment.BinaryData == nil {
			segment.BinaryData = map[string][]byte{}
		}
		segment.BinaryData[partKey(record.Event.Seq)] = record.Part
	}
}

// write creates or updates, and settles an answer that is not clear by reading.
func (s *Store) write(ctx context.Context, segment *corev1.ConfigMap, create bool) (*corev1.ConfigMap, error) {
	if segment.Annotations == nil {
		segment.Annotations = map[string]string{}
	}
	segment.Annotations[annotationWrite] = s.nonce()
	wanted := segment.DeepCopy()
	if canary.Is(canary.NoFence) {
		segment.ResourceVersion = ""
	}
	var err error
	if create {
		err = s.client.Create(ctx, segment)
	} else {
		err = s.client.Update(ctx, segment)
	}
	if err == nil || canary.Is(canary.ExistsIsSuccess) && apierrors.IsAlreadyExists(err) {
		return segment, nil
	}
	if refused(err) {
		return nil, &RefusedError{Segment: wanted.Name, Err: err}
	}
	live := &corev1.ConfigMap{}
	if readErr := s.client.Get(ctx, client.ObjectKeyFromObject(wanted), live); readErr == nil && ours(live, wanted) {
		return live, nil
	}
	return nil, fmt.Errorf("appending to journal segment %s: %w", wanted.Name, err)
}

// ours is true only for exactly what this write wanted, under its own nonce.
func ours(live, wanted *corev1.ConfigMap) bool {
	if live.Annotations[annotationWrite] != wanted.Annotations[annotationWrite] ||
		live.Labels[v1alpha1.LabelRunUID] != wanted.Labels[v1alpha1.LabelRunUID] ||
		ptr.Deref(live.Immutable, false) != ptr.Deref(wanted.Immutable, false) ||
		!maps.Equal(live.Data, wanted.Data) || len(live.BinaryData) != len(wanted.BinaryData) {
		return false
	}
	for key, value := range wanted.BinaryData {
		if string(live.BinaryData[key]) != string(value) {
			return false
		}
	}
	return true
}

// refused tells answers that waiting for a better moment may change, but reading won't:
// quota, admission, size, permissions. A conflict is none of them.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsBadRequest(err)
}

// Labels are those on every object that belongs to a run.
func Labels(name, uid string) map[string]string {
	return map[string]string{v1alpha1.LabelRun: labelValue(name), v1alpha1.LabelRunUID: uid}
}

// labelValue hashes a name that is longer than a label may be.
func labelValue(name string) string {
	if len(name) <= 63 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:46] + "-" + hex.EncodeToString(sum[:8])
}
