package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPageIsCurrent(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != render() {
		t.Errorf("%s is not what the list of reasons gives: run make docs", path)
	}
}
