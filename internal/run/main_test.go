package run

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// checks is how many runs the property test plays, unless -rapid.checks says otherwise.
const checks = 300

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		if err := flag.Set("rapid.checks", fmt.Sprint(checks)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
