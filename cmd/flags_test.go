package main

import (
	"strings"
	"testing"
	"time"
)

// TestFlagsThatCannotBeMeant checks that each is refused at start, by its name and with what
// to change.
func TestFlagsThatCannotBeMeant(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(o *options)
		want string
	}{
		"the defaults":                 {func(*options) {}, ""},
		"a pod's name":                 {func(o *options) { o.workerName = "pawl-7d9f-abc" }, ""},
		"a host's name with dots":      {func(o *options) { o.workerName = "node-1.example.org" }, ""},
		"no shutdown grace":            {func(o *options) { o.shutdownGrace = 0 }, ""},
		"no worker name":               {func(o *options) { o.workerName = "" }, "--worker-name"},
		"a worker name in capitals":    {func(o *options) { o.workerName = "Node" }, "--worker-name"},
		"a worker name with a slash":   {func(o *options) { o.workerName = "a/b" }, "--worker-name"},
		"a worker name that is long":   {func(o *options) { o.workerName = strings.Repeat("a.", 125) + "a" }, "--worker-name"},
		"no namespace":                 {func(o *options) { o.namespace = "" }, "--namespace"},
		"a namespace with a dot":       {func(o *options) { o.namespace = "a.b" }, "--namespace"},
		"a lease too short":            {func(o *options) { o.leaseDuration = time.Second }, "--lease-duration"},
		"a negative lease":             {func(o *options) { o.leaseDuration = -time.Minute }, "--lease-duration"},
		"a lease too long":             {func(o *options) { o.leaseDuration = time.Hour }, "--lease-duration"},
		"no turns":                     {func(o *options) { o.maxConcurrentTurns = 0 }, "--max-concurrent-turns "},
		"negative turns per namespace": {func(o *options) { o.maxTurnsPerNamespace = -1 }, "--max-concurrent-turns-per-namespace"},
		"no workers":                   {func(o *options) { o.workers = 0 }, "--workers"},
		"negative workers":             {func(o *options) { o.workers = -1 }, "--workers"},
		"no refusal timeout":           {func(o *options) { o.journalRefusalTimeout = 0 }, "--journal-refusal-timeout"},
		"a negative refusal timeout":   {func(o *options) { o.journalRefusalTimeout = -time.Second }, "--journal-refusal-timeout"},
		"a negative shutdown grace":    {func(o *options) { o.shutdownGrace = -time.Second }, "--shutdown-grace"},
		"no deletion grace":            {func(o *options) { o.deletionGrace = 0 }, "--deletion-grace"},
		"a negative deletion grace":    {func(o *options) { o.deletionGrace = -time.Second }, "--deletion-grace"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options{
				workerName: "pawl", namespace: "pawl-system", leaseDuration: 15 * time.Second, maxConcurrentTurns: 500,
				workers: 8, journalRefusalTimeout: 10 * time.Minute, shutdownGrace: 40 * time.Second, deletionGrace: 10 * time.Minute,
			}
			test.edit(&o)
			err := o.check()
			if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("error %v, want one of %q", err, test.want)
			}
		})
	}
}

// TestEverythingWrongIsSaidAtOnce checks that nobody has to try again for each flag.
func TestEverythingWrongIsSaidAtOnce(t *testing.T) {
	err := options{}.check()
	for _, flag := range []string{"--worker-name", "--namespace", "--lease-duration", "--max-concurrent-turns", "--workers", "--journal-refusal-timeout", "--deletion-grace"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s is not named in %v", flag, err)
		}
	}
}
