//go:build canary

package canary

var missing Guard

// Is says whether a guard is left out.
func Is(guard Guard) bool { return guard == missing }

// LeaveOut leaves one guard out, none where it is empty. Nothing may run meanwhile.
func LeaveOut(guard Guard) { missing = guard }
