package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockFolder marks a work folder as this process's for as long as it lives, and notes its
// process id for Owner. The kernel drops the lock with the process, however that ends.
func lockFolder(dir string) (*os.File, error) {
	file, err := os.OpenFile(lockName(dir), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the work folder: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is in use by another control plane", dir), file.Close())
	}
	if err := file.Truncate(0); err != nil {
		return nil, errors.Join(fmt.Errorf("locking the work folder: %w", err), file.Close())
	}
	if _, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("locking the work folder: %w", err), file.Close())
	}
	return file, nil
}

// Owner returns the id of the process that runs the control plane in dir, or zero if none does.
func Owner(dir string) (int, error) {
	file, err := os.Open(lockName(dir))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("looking for the owner of %s: %w", dir, err)
	}
	defer func() { _ = file.Close() }()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err == nil {
		return 0, nil
	}
	data, err := os.ReadFile(lockName(dir))
	if err != nil {
		return 0, fmt.Errorf("looking for the owner of %s: %w", dir, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("looking for the owner of %s: %w", dir, err)
	}
	return pid, nil
}

func lockName(dir string) string { return filepath.Join(dir, "lock") }
