// Package npm gives tests the npm packages that they run, pinned by a lock file and
// installed once.
package npm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pawl-run/pawl/test/controlplane"
)

// InstallTimeout bounds npm, whose registry may be out of reach.
const InstallTimeout = 2 * time.Minute

// Script gives the path of a script that belongs to what the package-lock.json in folder
// names. It is installed once for each content of that file, under a name, in the cache of
// development programs. The error says why it can't be had here.
func Script(ctx context.Context, folder, name, script string) (string, error) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%s is not installed", program)
		}
	}
	lock, err := os.ReadFile(filepath.Join(folder, "package-lock.json"))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(lock)
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	home := filepath.Join(dir, "npm", name+"-"+hex.EncodeToString(sum[:8]))
	path := filepath.Join(home, "node_modules", script)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := install(ctx, folder, home, path); err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the installed package has no %s", script)
	}
	return path, nil
}

// cacheDir is where the development programs are cached: PAWL_BIN_CACHE, or the user's
// cache, or bin/ of this clone.
func cacheDir() (string, error) {
	root, err := controlplane.Root()
	if err != nil {
		return "", err
	}
	dir := os.Getenv("PAWL_BIN_CACHE")
	if dir == "" {
		if dir, err = os.UserCacheDir(); err == nil {
			dir = filepath.Join(dir, "pawl")
		}
	}
	if dir == "off" || dir == "" || os.MkdirAll(dir, 0o755) != nil {
		return filepath.Join(root, "bin"), nil
	}
	return dir, nil
}

// install lets npm fetch what the lock file names into a new folder, and moves that to
// home when it is complete.
func install(ctx context.Context, folder, home, script string) error {
	ctx, cancel := context.WithTimeout(ctx, InstallTimeout)
	defer cancel()
	if err := os.MkdirAll(filepath.Dir(home), 0o755); err != nil {
		return err
	}
	part, err := os.MkdirTemp(filepath.Dir(home), "part-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(part) }()
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc"} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(part, name), data, 0o644); err != nil {
			return err
		}
	}
	command := exec.CommandContext(ctx, "npm", "ci")
	command.Dir = part
	command.WaitDelay = time.Second
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w: %.500s", err, strings.TrimSpace(string(output)))
	}
	if err := os.Rename(part, home); err != nil {
		if _, there := os.Stat(script); there == nil {
			return nil // another suite was faster
		}
		return err
	}
	return nil
}
