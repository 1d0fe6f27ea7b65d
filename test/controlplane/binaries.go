package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Component names one of the programs that make up a control plane. It is the name of the
// program's binary as well as of its log and pid files.
type Component string

// The components that Start runs.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
)

const kubectl = "kubectl"

const modulePath = "github.com/pawl-run/pawl"

// Root returns the top folder of the repository that the working directory belongs to.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module "+modulePath+"\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("finding the repository: the working directory is not inside module %s", modulePath)
		}
		dir = parent
	}
}

// DefaultConfig returns the kustomization that installs the whole product: config/default.
// It panics outside the repository, which only a mistake in a test can cause.
func DefaultConfig() string {
	root, err := Root()
	if err != nil {
		panic(err)
	}
	return filepath.Join(root, "config", "default")
}

// Binaries returns the folder that holds the control plane's programs and kubectl:
// KUBEBUILDER_ASSETS where that is set and complete, else what `make kubernetes` left.
func Binaries() (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" && checkBinaries(dir) == nil {
		return dir, nil
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "bin", "k8s", "current")
	if err := checkBinaries(dir); err != nil {
		return "", fmt.Errorf("%w; run `make kubernetes`", err)
	}
	return dir, nil
}

func checkBinaries(dir string) error {
	var errs []error
	for _, name := range []string{string(Etcd), string(APIServer), string(ControllerManager), kubectl} {
		info, err := os.Stat(filepath.Join(dir, name))
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("looking for %s: %w", name, err))
		case info.Mode()&0o111 == 0:
			errs = append(errs, fmt.Errorf("looking for %s: %s is not executable", name, filepath.Join(dir, name)))
		}
	}
	return errors.Join(errs...)
}
