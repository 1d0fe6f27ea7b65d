package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

// declaredReasons reads the constants of type Reason out of the package's source.
func declaredReasons(t *testing.T) []v1alpha1.Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []v1alpha1.Reason
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" {
			return true
		}
		for _, value := range spec.Values {
			text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			reasons = append(reasons, v1alpha1.Reason(text))
		}
		return true
	})
	if len(reasons) == 0 {
		t.Fatal("conditions.go declares no reason")
	}
	return reasons
}

func TestAllReasonsListsEveryConstant(t *testing.T) {
	listed := map[v1alpha1.Reason]bool{}
	for _, info := range v1alpha1.AllReasons() {
		listed[info.Reason] = true
	}
	for _, reason := range declaredReasons(t) {
		if !listed[reason] {
			t.Errorf("%s is not in the list", reason)
		}
		delete(listed, reason)
	}
	for reason := range listed {
		t.Errorf("%s is listed, but no constant", reason)
	}
}

func TestReasonsAreExplained(t *testing.T) {
	seen := map[string]bool{}
	for _, info := range v1alpha1.AllReasons() {
		key := string(info.Reason) + " " + string(info.Status)
		if seen[key] {
			t.Errorf("%s is listed twice", key)
		}
		seen[key] = true
		if info.Status != metav1.ConditionTrue && info.Status != metav1.ConditionFalse && info.Status != metav1.ConditionUnknown {
			t.Errorf("%s has status %q", info.Reason, info.Status)
		}
		for _, text := range []string{info.When, info.WhatToDo} {
			if !strings.HasSuffix(text, ".") || strings.ContainsAny(text, "|\n") {
				t.Errorf("%s: %q is not one sentence for a table", info.Reason, text)
			}
		}
	}
}
