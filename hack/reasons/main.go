// Command reasons writes docs/reasons.md from the list of reasons in the API package.
// Run it from the root of the repository.
package main

import (
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

const path = "docs/reasons.md"

const introduction = `<!-- Written by hack/reasons from api/v1alpha1/reasons.go; change it there and run make docs. -->

# Reasons

Every AgentRun says where it stands in the condition ` + "`Succeeded`" + `. The condition is
` + "`Unknown`" + ` while the run is open and becomes ` + "`True`" + ` or ` + "`False`" + ` once, for ever. Its reason is
one of the following; no other exists.

To wait for the end of a run, whatever it is, wait for the condition ` + "`Finished`" + `:

    kubectl wait agentrun/NAME --for=condition=Finished
`

var sections = []struct {
	status metav1.ConditionStatus
	title  string
}{
	{metav1.ConditionUnknown, "The run is open: `Succeeded=Unknown`"},
	{metav1.ConditionTrue, "The run has completed: `Succeeded=True`"},
	{metav1.ConditionFalse, "The run has ended without an answer: `Succeeded=False`"},
}

func main() {
	if err := os.WriteFile(path, []byte(render()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "reasons:", err)
		os.Exit(1)
	}
}

func render() string {
	var page strings.Builder
	page.WriteString(introduction)
	for _, section := range sections {
		fmt.Fprintf(&page, "\n## %s\n\n| Reason | When | What to do |\n|---|---|---|\n", section.title)
		for _, info := range v1alpha1.AllReasons() {
			if info.Status == section.status {
				fmt.Fprintf(&page, "| `%s` | %s | %s |\n", info.Reason, info.When, info.WhatToDo)
			}
		}
	}
	return page.String()
}
