// Package regressions holds docs/regressions.md to the tests that there are.
package regressions
