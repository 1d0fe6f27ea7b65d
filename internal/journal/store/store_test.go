package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/strictjson"
)

const uid = "5f0c2a4e-0000-4000-8000-000000000001"

// cluster is an API server with one run, and what the store is to meet there.
type cluster struct {
	t      *testing.T
	run    *v1alpha1.AgentRun
	client client.WithWatch
	// on, where set, stands in the way of writes.
	on interceptor.Funcs
}

func newCluster(t *testing.T) *cluster {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return &cluster{
		t:      t,
		run:    &v1alpha1.AgentRun{ObjectMeta: metav1.ObjectMeta{Namespace: "support", Name: "order-17", UID: uid}},
		client: fake.NewClientBuilder().WithScheme(scheme).Build(),
	}
}

// store is one process's store: each has nonces of its own.
func (c *cluster) store(process string) *Store {
	n := 0
	return New(interceptor.NewClient(c.client, c.on), func() string {
		n++
		return fmt.Sprintf("%s-%d", process, n)
	})
}

func (c *cluster) load(s *Store) (*Log, []journal.Record) {
	c.t.Helper()
	log, records, err := s.Load(context.Background(), c.run)
	if err != nil {
		c.t.Fatal(err)
	}
	return log, records
}

func (c *cluster) segment(n int32) *corev1.ConfigMap {
	c.t.Helper()
	segment := &corev1.ConfigMap{}
	if err := c.client.Get(context.Background(), client.ObjectKey{Namespace: "support", Name: SegmentName(uid, n)}, segment); err != nil {
		c.t.Fatal(err)
	}
	return segment
}

func (c *cluster) append(s *Store, log *Log, records []journal.Record) {
	c.t.Helper()
	if err := s.Append(context.Background(), log, records, false); err != nil {
		c.t.Fatal(err)
	}
}

// sized makes n more events, each with about so many bytes.
func sized(t *testing.T, draft *journal.Draft, n, bytes int) []journal.Record {
	t.Helper()
	from := len(draft.Records)
	for range n {
		payload := journal.Payload(journal.ModelFailed{Class: "Transient", Code: strings.Repeat("x", bytes)})
		switch draft.State.Events {
		case 0:
			payload = journal.Claimed{Worker: "a"}
		case 1:
			payload = journal.RunStarted{Prompt: strings.Repeat("x", bytes)}
		}
		if err := draft.Add(payload, journal.Meta{Time: time.Unix(0, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	return draft.Records[from:]
}

// parted is a run that is ready for a decision, and the decision with a part.
func parted(t *testing.T, draft *journal.Draft, part []byte) []journal.Record {
	t.Helper()
	from := len(draft.Records)
	sized(t, draft, 2, 10)
	decision := journal.DecisionMade{Kind: journal.DecisionFinal, Text: "42", Part: strictjson.Digest(part)}
	if err := draft.Add(decision, journal.Meta{Time: time.Unix(0, 0), Part: part}); err != nil {
		t.Fatal(err)
	}
	return draft.Records[from:]
}

func newDraft() *journal.Draft { return &journal.Draft{State: journal.NewState(uid)} }

func TestAJournalIsReadAsItWasWritten(t *testing.T) {
	cases := map[string]struct {
		// appends are the sizes of the events of each append.
		appends      [][2]int
		wantSegments int32
		wantSealed   []bool
	}{
		"nothing":                       {wantSegments: 0},
		"one event":                     {appends: [][2]int{{1, 10}}, wantSegments: 1, wantSealed: []bool{false}},
		"several in one write":          {appends: [][2]int{{5, 10}}, wantSegments: 1, wantSealed: []bool{false}},
		"one after the other":           {appends: [][2]int{{1, 10}, {1, 10}, {1, 10}}, wantSegments: 1, wantSealed: []bool{false}},
		"sealed with the eighth":        {appends: [][2]int{{7, 10}, {1, 10}}, wantSegments: 1, wantSealed: []bool{true}},
		"the ninth begins another":      {appends: [][2]int{{7, 10}, {1, 10}, {1, 10}}, wantSegments: 2, wantSealed: []bool{true, false}},
		"sealed by size":                {appends: [][2]int{{2, 20_000}, {1, 10}}, wantSegments: 2, wantSealed: []bool{true, false}},
		"an append is never split":      {appends: [][2]int{{7, 10}, {6, 10}}, wantSegments: 1, wantSealed: []bool{true}},
		"unless no segment can hold it": {appends: [][2]int{{5, 300_000}, {1, 10}}, wantSegments: 3, wantSealed: []bool{true, true, false}},
		"an open one that can't take more": {
			appends: [][2]int{{2, 10}, {1, 899_000}, {1, 10}}, wantSegments: 2, wantSealed: []bool{true, false},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c, draft := newCluster(t), newDraft()
			writer := c.store("a")
			log, _ := c.load(writer)
			for _, a := range test.appends {
				c.append(writer, log, sized(t, draft, a[0], a[1]))
			}
			reread, records := c.load(c.store("b"))
			if state, err := journal.Fold(uid, records); err != nil || state.Head != draft.State.Head || state.Bytes != draft.State.Bytes {
				t.Errorf("%d of %d events are read, up to %s: %v", len(records), len(draft.Records), state.Head, err)
			}
			if log.Segments() != test.wantSegments || reread.Segments() != test.wantSegments {
				t.Errorf("%d segments written, %d read, want %d", log.Segments(), reread.Segments(), test.wantSegments)
			}
			for i, sealed := range test.wantSealed {
				if got := ptr.Deref(c.segment(int32(i)+1).Immutable, false); got != sealed {
					t.Errorf("segment %d is sealed: %v, want %v", i+1, got, sealed)
				}
			}
			// What is read goes on where the writer would.
			c.append(c.store("c"), reread, sized(t, draft, 1, 10))
			if _, records := c.load(c.store("d")); len(records) != len(draft.Records) {
				t.Errorf("%d events after going on, want %d", len(records), len(draft.Records))
			}
		})
	}
}

func TestSegmentsBelongToTheirRun(t *testing.T) {
	c := newCluster(t)
	c.run.Name = strings.Repeat("long-", 20)
	writer := c.store("a")
	log, _ := c.load(writer)
	c.append(writer, log, sized(t, newDraft(), 1, 10))
	segment := c.segment(1)
	if segment.Name != "pawl-journal-"+uid+"-0001" || segment.Labels[v1alpha1.LabelRunUID] != uid || len(segment.Labels[v1alpha1.LabelRun]) > 63 {
		t.Errorf("segment %s with labels %v", segment.Name, segment.Labels)
	}
	if owner := metav1.GetControllerOf(segment); owner == nil || owner.UID != uid || owner.Kind != "AgentRun" || owner.APIVersion != v1alpha1.GroupVersion.String() {
		t.Errorf("owner %+v", metav1.GetControllerOf(segment))
	}
	if _, ok := segment.Data["e000001"]; !ok || len(segment.Data) != 1 {
		t.Errorf("data %v", segment.Data)
	}
}

func TestPartsAreKeptByteForByte(t *testing.T) {
	c, draft := newCluster(t), newDraft()
	part := []byte("{ \"role\" : \"assistant\", \"signature\" : \"\u2028<&>\" }\n")
	writer := c.store("a")
	log, _ := c.load(writer)
	c.append(writer, log, parted(t, draft, part))
	_, records := c.load(c.store("b"))
	if got := records[2].Part; string(got) != string(part) {
		t.Errorf("part %s", got)
	}
	if _, err := journal.Fold(uid, records); err != nil {
		t.Error(err)
	}
}

// Two processes with the same journal in hand: one append wins, whichever place it is
// for, and the loser knows that it lost.
func TestALostRaceIsLost(t *testing.T) {
	for name, before := range map[string]int{"for the first segment": 0, "for the tail": 3, "for the next segment": 8} {
		t.Run(name, func(t *testing.T) {
			c, draft := newCluster(t), newDraft()
			if before > 0 {
				writer := c.store("a")
				log, _ := c.load(writer)
				c.append(writer, log, sized(t, draft, before, 10))
			}
			one, two := c.store("one"), c.store("two")
			logOne, _ := c.load(one)
			logTwo, _ := c.load(two)
			won := sized(t, draft, 1, 10)
			c.append(one, logOne, won)
			// The same event, byte for byte, is not the loser's own either.
			err := two.Append(context.Background(), logTwo, won, false)
			if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
				t.Fatalf("the loser got %v", err)
			}
			if _, records := c.load(c.store("b")); len(records) != before+1 {
				t.Errorf("%d events, want %d", len(records), before+1)
			}
		})
	}
}

var errTimeout = apierrors.NewTimeoutError("the server was slow", 1)

// answers makes each write end as the function says, executed or not.
func answers(executed bool, err error) interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			if executed {
				if err := c.Create(ctx, object, opts...); err != nil {
					return err
				}
			}
			return err
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.UpdateOption) error {
			if executed {
				if err := c.Update(ctx, object, opts...); err != nil {
					return err
				}
			}
			return err
		},
	}
}

// An answer that is not clear is settled by reading what is there.
func TestUnclearAnswers(t *testing.T) {
	for place, before := range map[string]int{"create": 0, "update": 3} {
		for name, test := range map[string]struct {
			executed bool
			err      error
			wantErr  bool
		}{
			"a timeout, though executed":         {true, errTimeout, false},
			"a timeout, not executed":            {false, errTimeout, true},
			"a broken connection, executed":      {true, errors.New("EOF"), false},
			"a broken connection, not executed":  {false, errors.New("EOF"), true},
			"an internal error, though executed": {true, apierrors.NewInternalError(errors.New("x")), false},
			"a conflict with oneself":            {true, apierrors.NewConflict(corev1.Resource("configmaps"), "x", errors.New("x")), false},
		} {
			t.Run(place+": "+name, func(t *testing.T) {
				c, draft := newCluster(t), newDraft()
				writer := c.store("a")
				log, _ := c.load(writer)
				if before > 0 {
					c.append(writer, log, sized(t, draft, before, 10))
				}
				c.on = answers(test.executed, test.err)
				flaky := c.store("b")
				log, _ = c.load(flaky)
				err := flaky.Append(context.Background(), log, sized(t, draft, 1, 10), false)
				if (err != nil) != test.wantErr || err != nil && !errors.Is(err, test.err) {
					t.Fatalf("error %v, want one: %v", err, test.wantErr)
				}
				c.on = interceptor.Funcs{}
				want := before
				if test.executed {
					want++
					// The log that came out of it is as good as any.
					c.append(c.store("c"), log, sized(t, draft, 1, 10))
					want++
				}
				if _, records := c.load(c.store("d")); len(records) != want {
					t.Errorf("%d events, want %d", len(records), want)
				}
			})
		}
	}
}

// An unclear answer to a write that somebody else's came before is a lost race.
func TestAnUnclearAnswerAboutSomebodyElsesWrite(t *testing.T) {
	c, draft := newCluster(t), newDraft()
	two := c.store("two")
	logTwo, _ := c.load(two)
	records := sized(t, draft, 1, 10)
	one := c.store("one")
	logOne, _ := c.load(one)
	c.append(one, logOne, records)
	c.on = answers(false, errTimeout)
	two = New(interceptor.NewClient(c.client, c.on), func() string { return "two" })
	if err := two.Append(context.Background(), logTwo, records, false); !errors.Is(err, errTimeout) {
		t.Errorf("error %v", err)
	}
}

// An answer that can't be settled, because reading fails too, is an error.
func TestReadingFailsAfterAnUnclearAnswer(t *testing.T) {
	c := newCluster(t)
	c.on = answers(true, errTimeout)
	s := c.store("a")
	log, _ := c.load(s)
	c.on.Get = func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errTimeout
	}
	s = c.store("b")
	if err := s.Append(context.Background(), log, sized(t, newDraft(), 1, 10), false); !errors.Is(err, errTimeout) {
		t.Errorf("error %v", err)
	}
	if _, _, err := s.Load(context.Background(), c.run); !errors.Is(err, errTimeout) {
		t.Errorf("error of Load: %v", err)
	}
}

func TestRefusedWrites(t *testing.T) {
	configMaps := corev1.Resource("configmaps")
	for name, test := range map[string]struct {
		err     error
		refused bool
	}{
		"quota or admission": {apierrors.NewForbidden(configMaps, "x", errors.New("exceeded quota")), true},
		"not valid":          {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "x", nil), true},
		"too large":          {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), true},
		"bad request":        {apierrors.NewBadRequest("no"), true},
		"lost race":          {apierrors.NewConflict(configMaps, "x", errors.New("x")), false},
		"server away":        {apierrors.NewServiceUnavailable("x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.on = answers(false, test.err)
			s := c.store("a")
			log, _ := c.load(s)
			err := s.Append(context.Background(), log, sized(t, newDraft(), 1, 10), false)
			var refused *RefusedError
			if errors.As(err, &refused) != test.refused || !errors.Is(err, test.err) {
				t.Fatalf("error %v", err)
			}
			if test.refused && (refused.Segment != SegmentName(uid, 1) || !strings.Contains(err.Error(), refused.Segment)) {
				t.Errorf("refused segment %q: %v", refused.Segment, err)
			}
		})
	}
}

// A write that has to be split and fails half-way leaves the beginning, which is a
// journal too.
func TestASplitWriteThatFails(t *testing.T) {
	c, draft := newCluster(t), newDraft()
	writes := 0
	c.on = interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
		if writes++; writes > 1 {
			return errTimeout
		}
		return c.Create(ctx, object, opts...)
	}}
	s := c.store("a")
	log, _ := c.load(s)
	if err := s.Append(context.Background(), log, sized(t, draft, 5, 300_000), false); !errors.Is(err, errTimeout) {
		t.Fatalf("error %v", err)
	}
	_, records := c.load(c.store("b"))
	state, err := journal.Fold(uid, records)
	if err != nil || state.Events == 0 || state.Events == 5 {
		t.Errorf("%d events are left: %v", state.Events, err)
	}
}
