package store

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
)

// What the operator did not write as it is, is refused, and the place is named. What
// can only be seen in the chain is refused by the fold.
func TestCorruptSegments(t *testing.T) {
	cases := map[string]struct {
		segment int32
		edit    func(*corev1.ConfigMap)
		// wantPlace and wantProblem are of the CorruptError; without a place Load reads
		// on and wantProblem is of the fold.
		wantPlace   string
		wantProblem string
	}{
		"of another run":    {1, func(s *corev1.ConfigMap) { s.Labels[v1alpha1.LabelRunUID] = "other" }, "-0001", "does not name this run"},
		"without its label": {2, func(s *corev1.ConfigMap) { s.Labels = nil }, "-0002", "does not name this run"},
		"an event missing":  {1, func(s *corev1.ConfigMap) { delete(s.Data, "e000002") }, "-0001/e000002", "missing"},
		"the first missing": {1, func(s *corev1.ConfigMap) { delete(s.Data, "e000001") }, "-0001/e000001", "missing"},
		"an event too many": {1, func(s *corev1.ConfigMap) { s.Data["odd"] = "{}" }, "-0001/e000009", "missing"},
		"no events":         {2, func(s *corev1.ConfigMap) { s.Data = nil }, "-0002", "no event"},
		"not readable":      {1, func(s *corev1.ConfigMap) { s.Data["e000003"] = "{" }, "-0001/e000003", "can't be read"},
		"another format":    {1, func(s *corev1.ConfigMap) { s.Data["e000003"] = `{"v":0,"seq":3}` }, "-0001/e000003", "can't be read"},
		"a part of nothing": {2, func(s *corev1.ConfigMap) { s.BinaryData = map[string][]byte{"p000001": {1}} }, "-0002", "no event accounts for"},
		"a part planted":    {2, func(s *corev1.ConfigMap) { s.BinaryData = map[string][]byte{"p000009": {1}} }, "", "only decisions have"},
		"an event altered": {1, func(s *corev1.ConfigMap) {
			s.Data["e000003"] = strings.Replace(s.Data["e000003"], "Transient", "Throttled", 1)
		}, "", "chain is broken"},
		"two exchanged": {1, func(s *corev1.ConfigMap) {
			s.Data["e000003"], s.Data["e000004"] = s.Data["e000004"], s.Data["e000003"]
		}, "", "does not follow"},
		"the end cut off": {1, func(s *corev1.ConfigMap) { delete(s.Data, "e000008") }, "-0002/e000008", "missing"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c, draft := newCluster(t), newDraft()
			s := c.store("a")
			log, _ := c.load(s)
			c.append(s, log, sized(t, draft, 8, 10))
			c.append(s, log, sized(t, draft, 2, 10))
			damaged := c.segment(test.segment)
			test.edit(damaged)
			// Whoever can damage a sealed segment has ways around its seal.
			if err := c.client.Delete(context.Background(), c.segment(test.segment)); err != nil {
				t.Fatal(err)
			}
			damaged.ResourceVersion = ""
			if err := c.client.Create(context.Background(), damaged); err != nil {
				t.Fatal(err)
			}
			_, records, err := c.store("b").Load(context.Background(), c.run)
			if test.wantPlace == "" {
				if err != nil {
					t.Fatalf("Load: %v", err)
				}
				if _, err = journal.Fold(uid, records); err == nil || !strings.Contains(err.Error(), test.wantProblem) {
					t.Errorf("Fold: %v, want %q", err, test.wantProblem)
				}
				return
			}
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatalf("error %v", err)
			}
			if want := "pawl-journal-" + uid + test.wantPlace; corrupt.Place != want || !strings.Contains(corrupt.Problem, test.wantProblem) {
				t.Errorf("%s: %s; want %s: %s", corrupt.Place, corrupt.Problem, want, test.wantProblem)
			}
		})
	}
}

// A journal that a later build has written to is not broken, and not this build's.
func TestASegmentOfALaterFormat(t *testing.T) {
	c, draft := newCluster(t), newDraft()
	s := c.store("a")
	log, _ := c.load(s)
	c.append(s, log, sized(t, draft, 2, 10))
	later := c.segment(1)
	later.Data["e000003"] = `{"v":2,"seq":3,"invented":{"later":true}}`
	if err := c.client.Update(context.Background(), later); err != nil {
		t.Fatal(err)
	}
	_, _, err := c.store("b").Load(context.Background(), c.run)
	var corrupt *CorruptError
	var newer *journal.NewerError
	if errors.As(err, &corrupt) || !errors.As(err, &newer) || newer.Version != 2 || !strings.Contains(err.Error(), "-0001/e000003") {
		t.Errorf("Load: %v", err)
	}
}

// A segment that vanished makes the journal shorter: that is for the low-water mark in
// status to notice, and nothing that comes after the gap is ever read.
func TestAMissingSegmentEndsTheJournal(t *testing.T) {
	c, draft := newCluster(t), newDraft()
	s := c.store("a")
	log, _ := c.load(s)
	for range 3 {
		c.append(s, log, sized(t, draft, 8, 10))
	}
	if err := c.client.Delete(context.Background(), c.segment(2)); err != nil {
		t.Fatal(err)
	}
	log, records := c.load(c.store("b"))
	if len(records) != 8 || log.Segments() != 1 {
		t.Errorf("%d events in %d segments", len(records), log.Segments())
	}
}

// Somebody's object under the name of the next segment is no journal of ours, and is
// never overwritten.
func TestAForeignSegment(t *testing.T) {
	c := newCluster(t)
	s := c.store("a")
	log, _ := c.load(s)
	foreign := &corev1.ConfigMap{}
	foreign.Namespace, foreign.Name = "support", SegmentName(uid, 1)
	foreign.Data = map[string]string{"e000001": "{}"}
	if err := c.client.Create(context.Background(), foreign); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(context.Background(), log, sized(t, newDraft(), 1, 10), false); err == nil {
		t.Errorf("the append took place")
	}
	if got := c.segment(1).Data["e000001"]; got != "{}" {
		t.Errorf("it was overwritten with %s", got)
	}
	var corrupt *CorruptError
	if _, _, err := s.Load(context.Background(), c.run); !errors.As(err, &corrupt) {
		t.Errorf("Load: %v", err)
	}
}
