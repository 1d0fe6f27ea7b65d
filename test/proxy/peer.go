package proxy

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ProcessOf finds which of some processes of this machine has the socket with a local
// IPv4 address, 0 for none of them. It needs Linux.
func ProcessOf(address string, pids []int) int {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil {
		return 0
	}
	// The kernel's table is read in pieces while it changes, and a line can slip through.
	inode := ""
	for try := 0; inode == "" && try < 5; try++ {
		inode = inodeOf(parsed)
	}
	if inode == "" {
		return 0
	}
	for _, pid := range pids {
		descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			continue
		}
		for _, descriptor := range descriptors {
			if target, err := os.Readlink(descriptor); err == nil && target == "socket:["+inode+"]" {
				return pid
			}
		}
	}
	return 0
}

// inodeOf looks the socket of a local address up in the kernel's table.
func inodeOf(address netip.AddrPort) string {
	file, err := os.Open("/proc/net/tcp")
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	ip := address.Addr().Unmap().As4()
	slices.Reverse(ip[:])
	local := fmt.Sprintf("%s:%04X", strings.ToUpper(hex.EncodeToString(ip[:])), address.Port())
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 9 && fields[1] == local {
			return fields[9]
		}
	}
	return ""
}
