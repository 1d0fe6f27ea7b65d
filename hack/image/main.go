// Command image packs one static program into an image archive and writes it to standard
// output: without a registry, a base image or a container runtime, in the format of `docker
// save`, which `ctr images import`, `kind load image-archive` and the like read.
//
//	image NAME:TAG PROGRAM > archive.tar
//
// The same program gives the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: image NAME:TAG PROGRAM > archive.tar")
		os.Exit(2)
	}
	if err := pack(os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func pack(w io.Writer, name, program string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	at := filepath.Base(program)
	var layer bytes.Buffer
	if err := archive(&layer, file{at, 0o755, content}); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/" + at}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	return archive(w, file{"layer.tar", 0o644, layer.Bytes()}, file{"config.json", 0o644, config}, file{"manifest.json", 0o644, manifest})
}

type file struct {
	name    string
	mode    int64
	content []byte
}

// archive writes files without times and owners, so that the same content is the same bytes.
func archive(w io.Writer, files ...file) error {
	out := tar.NewWriter(w)
	for _, f := range files {
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content))}); err != nil {
			return err
		}
		if _, err := out.Write(f.content); err != nil {
			return err
		}
	}
	return out.Close()
}
