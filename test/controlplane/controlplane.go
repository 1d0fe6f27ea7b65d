package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Options say how a control plane is started. The zero value is a complete one in a
// temporary folder, with nothing installed.
type Options struct {
	// Dir is the work folder: data, certificates, logs and kubeconfigs. It is created if
	// need be, must not be in use by another control plane, and stays after Stop. Empty
	// means a temporary folder, which Stop removes unless PAWL_KEEP is set.
	Dir string

	// BinaryDir is where the programs are. Empty means Binaries().
	BinaryDir string

	// Install lists kustomizations or files to apply before the controller manager starts,
	// so that its garbage collector knows the custom resources from the beginning instead
	// of from its next discovery, up to 30 s later. See ControlPlane.Install.
	Install []string

	// APIServerFlags and ControllerManagerFlags are added to the programs' flags, or replace
	// those of the same name; names are without the leading dashes.
	APIServerFlags, ControllerManagerFlags map[string]string

	// WithoutControllerManager leaves kube-controller-manager out, for suites that need
	// neither garbage collection nor service accounts and want to start sooner.
	WithoutControllerManager bool

	// StartTimeout bounds the start of each program. Zero means a minute.
	StartTimeout time.Duration
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	*Access

	temporary bool
	plane     *envtest.ControlPlane
	mutex     sync.Mutex // guards processes
	processes []*Process
	watchdog  *watchdog
	logs      []*os.File
	lock      *os.File

	stopOnce sync.Once
	stopErr  error
}

// Start starts a control plane and returns when it serves requests, what was to be installed
// is in force, and the default namespace has its service account.
func Start(ctx context.Context, options Options) (_ *ControlPlane, err error) {
	if options.StartTimeout == 0 {
		options.StartTimeout = time.Minute
	}
	if options.BinaryDir == "" {
		if options.BinaryDir, err = Binaries(); err != nil {
			return nil, fmt.Errorf("finding the control plane's programs: %w", err)
		}
	}
	c := &ControlPlane{Access: &Access{binaries: options.BinaryDir}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := c.makeDirs(options.Dir); err != nil {
		return nil, err
	}
	if c.watchdog, err = startWatchdog(c.dir, c.temporary); err != nil {
		return nil, err
	}
	if err := c.startServers(options); err != nil {
		return nil, errors.Join(err, c.logTails(Etcd, APIServer))
	}
	if err := c.makeAdmin(); err != nil {
		return nil, err
	}
	if err := c.Install(ctx, options.Install...); err != nil {
		return nil, err
	}
	if options.WithoutControllerManager {
		return c, nil
	}
	manager, err := c.startManager(options)
	if err != nil {
		return nil, err
	}
	if err := c.waitForServiceAccount(ctx, manager, options.StartTimeout); err != nil {
		return nil, errors.Join(err, c.logTails(ControllerManager))
	}
	return c, nil
}

// Stop ends the control plane's own processes and waits for them. Calling it again returns
// the first call's error.
func (c *ControlPlane) Stop() error {
	c.stopOnce.Do(func() {
		var errs []error
		c.mutex.Lock()
		defer c.mutex.Unlock()
		// Last in, first out: the operator ends before the controller manager.
		for _, process := range slices.Backward(c.processes) {
			errs = append(errs, process.Stop())
		}
		if c.plane != nil {
			errs = append(errs, c.plane.Stop())
		}
		if c.watchdog != nil {
			errs = append(errs, c.watchdog.stop())
		}
		for _, log := range c.logs {
			errs = append(errs, log.Close())
		}
		if c.temporary && os.Getenv("PAWL_KEEP") == "" {
			errs = append(errs, os.RemoveAll(c.dir))
		}
		if c.lock != nil {
			errs = append(errs, c.lock.Close())
		}
		c.stopErr = errors.Join(errs...)
	})
	return c.stopErr
}

// EtcdURL is where etcd serves its clients, over plain HTTP.
func (c *ControlPlane) EtcdURL() string { return c.plane.Etcd.URL.String() }

// Program returns the path of a component's program, for more of them.
func (c *ControlPlane) Program(component Component) string {
	return filepath.Join(c.binaries, string(component))
}

func (c *ControlPlane) makeDirs(dir string) error {
	var err error
	if dir == "" {
		c.temporary = true
		dir, err = os.MkdirTemp("", "pawl-controlplane-")
	} else {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return fmt.Errorf("making the work folder: %w", err)
	}
	c.dir = dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the work folder: %w", err)
	}
	if c.lock, err = lockFolder(dir); err != nil {
		return err
	}
	for _, sub := range []string{"etcd", "certs", "logs", "pids", "wrappers", "kubeconfigs", "home"} {
		if err := clearDir(filepath.Join(dir, sub)); err != nil {
			return err
		}
	}
	return nil
}

// startServers starts etcd and the API server. A port that was free a moment ago can be
// taken by now, so it tries again; envtest picks new ports on every attempt.
func (c *ControlPlane) startServers(options Options) error {
	const attempts = 3
	var errs []error
	for range attempts {
		plane, err := c.configureServers(options)
		if err != nil {
			return err
		}
		if err := plane.Start(); err != nil {
			errs = append(errs, fmt.Errorf("starting etcd and kube-apiserver: %w", err))
			continue
		}
		c.plane = plane
		return nil
	}
	return errors.Join(errs...)
}

func (c *ControlPlane) configureServers(options Options) (*envtest.ControlPlane, error) {
	etcd := &envtest.Etcd{DataDir: filepath.Join(c.dir, "etcd"), StartTimeout: options.StartTimeout}
	server := &envtest.APIServer{CertDir: filepath.Join(c.dir, "certs"), StartTimeout: options.StartTimeout}
	// envtest keeps existing certificates but not the authority it needs to trust them.
	for _, stale := range []string{etcd.DataDir, server.CertDir} {
		if err := clearDir(stale); err != nil {
			return nil, err
		}
	}
	var err error
	if etcd.Path, err = c.wrap(Etcd); err != nil {
		return nil, err
	}
	if server.Path, err = c.wrap(APIServer); err != nil {
		return nil, err
	}
	if etcd.Err, err = c.openLog(Etcd); err != nil {
		return nil, err
	}
	etcd.Out = etcd.Err
	if server.Err, err = c.openLog(APIServer); err != nil {
		return nil, err
	}
	server.Out = server.Err

	flags := server.Configure()
	// envtest turns this plugin off because it runs no controllers; here they run.
	flags.Disable("disable-admission-plugins")
	// Some clusters want finalizer rights of whoever sets blocking owner references. Being
	// strict here shows a missing rule before such a cluster does.
	flags.Set("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	flags.Set("service-account-issuer", "https://kubernetes.default.svc")
	flags.Set("profiling", "false")
	if options.WithoutControllerManager {
		flags.Set("disable-admission-plugins", "ServiceAccount")
	}
	for name, value := range options.APIServerFlags {
		flags.Set(name, value)
	}
	return &envtest.ControlPlane{
		Etcd:        etcd,
		APIServer:   server,
		KubectlPath: c.KubectlPath(),
	}, nil
}

func clearDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clearing %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("clearing %s: %w", dir, err)
	}
	return nil
}
