// Command manager is the Pawl operator.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/controller/agentrun"
	"github.com/pawl-run/pawl/internal/controller/child"
	"github.com/pawl-run/pawl/internal/controller/job"
	modelcontroller "github.com/pawl-run/pawl/internal/controller/model"
	"github.com/pawl-run/pawl/internal/controller/toolpolicy"
	"github.com/pawl-run/pawl/internal/journal/store"
	"github.com/pawl-run/pawl/internal/worker"
)

type options struct {
	metricsAddress, probeAddress string
	secureMetrics                bool
	workerName, namespace        string
	leaseDuration                time.Duration
	maxConcurrentTurns, workers  int
	maxTurnsPerNamespace         int
	journalRefusalTimeout        time.Duration
	shutdownGrace, deletionGrace time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.metricsAddress, "metrics-bind-address", ":8443", "Address of the metrics endpoint; 0 switches it off.")
	flag.BoolVar(&o.secureMetrics, "metrics-secure", true, "Serve metrics over HTTPS to those whom the API server authorizes.")
	flag.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "Address of /healthz and /readyz; 0 switches them off.")
	flag.StringVar(&o.workerName, "worker-name", workerName(), "Name of this process, unique among replicas. Default: POD_NAME, then the host name.")
	flag.StringVar(&o.namespace, "namespace", namespace(), "Namespace of the worker Leases. Default: POD_NAMESPACE, then pawl-system.")
	flag.DurationVar(&o.leaseDuration, "lease-duration", 15*time.Second, "How long a replica that stopped renewing is waited for; at least 2s.")
	flag.IntVar(&o.maxConcurrentTurns, "max-concurrent-turns", 500, "How many requests to models this process has under way at once; at least 1. The others wait, and those of the namespace with the least under way come first.")
	flag.IntVar(&o.maxTurnsPerNamespace, "max-concurrent-turns-per-namespace", 0, "How many of them for the runs of one namespace, so that no namespace takes all. Default: four fifths of --max-concurrent-turns.")
	flag.IntVar(&o.workers, "workers", 8, "How many runs are reconciled at the same time. Waiting for models and tools takes none.")
	flag.DurationVar(&o.journalRefusalTimeout, "journal-refusal-timeout", 10*time.Minute, "How long the API server may refuse a run's journal before the run ends as CheckpointFailed.")
	flag.DurationVar(&o.shutdownGrace, "shutdown-grace", 40*time.Second, "How long what is in flight may take to end once this process is asked to stop.")
	flag.DurationVar(&o.deletionGrace, "deletion-grace", 10*time.Minute, "How long a deleted run waits for somebody to settle its unknown outcomes before it is let go.")
	logging := zap.Options{}
	logging.BindFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logging)))

	if err := start(ctrl.SetupSignalHandler(), o); err != nil {
		ctrl.Log.Error(err, "Stopped")
		os.Exit(1)
	}
}

func start(signalled context.Context, o options) error {
	if err := o.check(); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, o.manager(scheme))
	if err != nil {
		return fmt.Errorf("building the manager: %w", err)
	}
	// The manager outlives the signal: runs in flight are handed over first.
	ctx, stop := context.WithCancel(context.WithoutCancel(signalled))
	defer stop()
	operator, err := register(ctx, mgr, o)
	if err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("member", func(*http.Request) error { return operator.members.Ready() }); err != nil {
		return err
	}
	go func() {
		<-signalled.Done()
		operator.drain(ctx, o.shutdownGrace)
		stop()
	}()
	return mgr.Start(ctx)
}

// callsJobs selects the Jobs that belong to a run.
var callsJobs = func() labels.Selector {
	belongs, err := labels.NewRequirement(v1alpha1.LabelRunUID, selection.Exists, nil)
	utilruntime.Must(err)
	return labels.NewSelector().Add(*belongs)
}()

func (o options) manager(scheme *runtime.Scheme) ctrl.Options {
	metrics := metricsserver.Options{BindAddress: o.metricsAddress, SecureServing: o.secureMetrics}
	if o.secureMetrics {
		metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metrics,
		HealthProbeBindAddress: o.probeAddress,
		// Of Jobs only those of calls are of interest.
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&batchv1.Job{}: {Label: callsJobs, Transform: cache.TransformStripManagedFields()},
		}},
		Client: client.Options{Cache: &client.CacheOptions{
			// Journals and Secrets are read live and by name, the operator may list neither;
			// a worker's Lease means something only when it is read live.
			DisableFor: []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}, &coordinationv1.Lease{}},
		}},
	}
}

// operator is what has to be told that the process ends.
type operator struct {
	members *worker.Membership
	runs    *agentrun.Reconciler
}

// drain hands this worker's runs over to the others.
func (o operator) drain(ctx context.Context, grace time.Duration) {
	if err := o.members.Drain(ctx); err != nil {
		ctrl.Log.Error(err, "Telling the other replicas failed")
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	o.runs.Drain(ctx, clock.RealClock{})
}

// register builds the controllers with everything they depend on.
func register(ctx context.Context, mgr ctrl.Manager, o options) (operator, error) {
	incarnation := randomHex(4)
	var reconciler *agentrun.Reconciler
	members := worker.NewMembership(worker.Options{
		Client: mgr.GetClient(), Clock: clock.RealClock{}, Namespace: o.namespace,
		Name: o.workerName, Incarnation: incarnation, NewIncarnation: func() string { return randomHex(4) }, Lease: o.leaseDuration,
		Heartbeat: func() bool { return reconciler.Heartbeat() },
		Changed:   func() { reconciler.WakeAll(ctx) },
		Go:        agentrun.Goroutines{}.Go,
	})
	pods, err := corev1client.NewForConfig(mgr.GetConfig())
	if err != nil {
		return operator{}, fmt.Errorf("building the client for pods' logs: %w", err)
	}
	jobs := job.NewCluster(mgr.GetClient(), mgr.GetAPIReader(), pods)
	journals := store.New(mgr.GetClient(), nonces(incarnation))
	children := child.NewCluster(mgr.GetClient(), mgr.GetAPIReader(), journals)
	adapters := agentrun.NewAdapters(mgr.GetClient(), jobs, children)
	reconciler = agentrun.New(agentrun.Options{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(),
		Store:    journals,
		Recorder: mgr.GetEventRecorder("pawl"),
		Clock:    clock.RealClock{}, Boot: bootClock, Executor: agentrun.Goroutines{}, Members: members,
		MaxConcurrentTurns: o.maxConcurrentTurns, MaxConcurrentTurnsPerNamespace: o.maxTurnsPerNamespace,
		JournalRefusalTimeout: o.journalRefusalTimeout, DeletionGrace: o.deletionGrace,
		Clients: adapters, Jobs: jobs, Children: children,
	})
	if err := mgr.Add(members); err != nil {
		return operator{}, fmt.Errorf("adding the worker membership: %w", err)
	}
	if err := reconciler.SetupWithManager(ctx, mgr, o.workers); err != nil {
		return operator{}, fmt.Errorf("registering the AgentRun controller: %w", err)
	}
	if err := toolpolicy.New(mgr.GetClient(), adapters).SetupWithManager(mgr); err != nil {
		return operator{}, fmt.Errorf("registering the ToolPolicy controller: %w", err)
	}
	if err := modelcontroller.New(mgr.GetClient()).SetupWithManager(mgr); err != nil {
		return operator{}, fmt.Errorf("registering the Model controller: %w", err)
	}
	return operator{members: members, runs: reconciler}, nil
}

// bootClock also counts the time in which the machine was suspended, which the
// monotonic clock of package time does not.
func bootClock() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		// Every Linux since 2.6.39 has it. Without it nothing may be sent once.
		return time.Duration(math.MaxInt64)
	}
	return time.Duration(now.Nano())
}

// nonces never repeat: the incarnation is random and the count only grows.
func nonces(incarnation string) func() string {
	random := randomHex(8)
	var count atomic.Int64
	return func() string { return fmt.Sprintf("%s-%s-%d", incarnation, random, count.Add(1)) }
}

func randomHex(n int) string {
	bytes := make([]byte, n)
	// Read never fails on a platform that Go supports; it would end the process.
	_, _ = rand.Read(bytes)
	return hex.EncodeToString(bytes)
}

func workerName() string {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return "pawl"
	}
	return name
}

func namespace() string {
	if name := os.Getenv("POD_NAMESPACE"); name != "" {
		return name
	}
	return "pawl-system"
}
