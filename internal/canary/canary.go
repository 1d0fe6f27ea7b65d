// Package canary names the guards that keep the operator's promises, so that each can be
// left out in a test build. The simulator has to notice every one that is missing: what
// it would not notice, it does not check.
//
// Without the build tag canary, Is is a function that returns the constant false. The
// compiler inlines it and drops the branch, so that a released binary holds neither the
// branches nor any way to take them:
//
//	go build -o pawl ./cmd && go tool objdump pawl | grep 'CALL.*internal/canary'
//
// finds nothing.
package canary

// Guard is something that the operator does, or does not do, for safety's sake.
type Guard string

// Guards that can be left out, each named after what goes wrong without it.
const (
	// NoFence appends without compare-and-set, whoever owns the run.
	NoFence Guard = "NoFence"
	// TwoTails begins a new segment while the last one is open.
	TwoTails Guard = "TwoTails"
	// ExistsIsSuccess takes AlreadyExists for a create that succeeded.
	ExistsIsSuccess Guard = "ExistsIsSuccess"
	// NoIncarnation names a worker after its replica alone.
	NoIncarnation Guard = "NoIncarnation"
	// LateResult asks the model before what it is told is committed.
	LateResult Guard = "LateResult"
	// BatchAtEnd commits outcomes once the whole batch has them.
	BatchAtEnd Guard = "BatchAtEnd"
	// DispatchFirst sends before the dispatch is committed.
	DispatchFirst Guard = "DispatchFirst"
	// StaleApproval judges verdicts by the cache.
	StaleApproval Guard = "StaleApproval"
	// LeaseIgnored takes every other worker for dead.
	LeaseIgnored Guard = "LeaseIgnored"
	// FreshIgnored starts things without a lease of its own.
	FreshIgnored Guard = "FreshIgnored"
	// GateIgnored sends whenever the first byte happens to be due.
	GateIgnored Guard = "GateIgnored"
	// PauseBlind judges leases by a time that it slept through.
	PauseBlind Guard = "PauseBlind"
	// LastLook takes a run from a worker that was dead when it last looked.
	LastLook Guard = "LastLook"
	// Replay lets the transport send again what may be sent once.
	Replay Guard = "Replay"
	// EmptyFold begins a lost journal anew.
	EmptyFold Guard = "EmptyFold"
	// StaleMark learns from the cache how long a journal must be.
	StaleMark Guard = "StaleMark"
	// AssumedFailed takes a call for rejected whose sender was lost.
	AssumedFailed Guard = "AssumedFailed"
	// DoubtForgotten believes the last attempt and forgets the ones before.
	DoubtForgotten Guard = "DoubtForgotten"
	// KeyOutlived sends with an idempotency key that the service has forgotten.
	KeyOutlived Guard = "KeyOutlived"
	// LateStatus writes the status of a state that is no longer the newest.
	LateStatus Guard = "LateStatus"
	// LateDropped forgets what a call says that comes back after it was given up.
	LateDropped Guard = "LateDropped"
	// OverdueRejected takes a call for rejected that goes on outside for too long.
	OverdueRejected Guard = "OverdueRejected"
	// StaleAsk asks the model without a lease of its own.
	StaleAsk Guard = "StaleAsk"
	// Orphans leaves the segments of a run that is gone to whoever holds them.
	Orphans Guard = "Orphans"
	// ShareIgnored asks a Model as if no other worker did.
	ShareIgnored Guard = "ShareIgnored"
)

// Guards lists them all.
var Guards = []Guard{
	NoFence, TwoTails, ExistsIsSuccess, NoIncarnation, LateResult, BatchAtEnd, DispatchFirst, StaleApproval,
	LeaseIgnored, FreshIgnored, GateIgnored, PauseBlind, LastLook, Replay, EmptyFold, StaleMark, AssumedFailed,
	DoubtForgotten, KeyOutlived, LateStatus, LateDropped, OverdueRejected, StaleAsk, Orphans, ShareIgnored,
}
