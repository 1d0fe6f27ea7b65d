package schema

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/test/controlplane"
)

// maxDefinitionBytes leaves kubectl apply room for the copy of the definition that it
// keeps in an annotation, of at most 256 KiB.
const maxDefinitionBytes = 200 << 10

var _ = Describe("The definitions", func() {
	It("are small enough for kubectl apply, which takes them", func(ctx SpecContext) {
		root, err := controlplane.Root()
		Expect(err).NotTo(HaveOccurred())
		files, err := filepath.Glob(filepath.Join(root, "config", "crd", "bases", "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).To(HaveLen(3))
		for _, file := range files {
			info, err := os.Stat(file)
			Expect(err).NotTo(HaveOccurred())
			Expect(info.Size()).To(BeNumerically("<", maxDefinitionBytes), file)
			Expect(env.Plane.Kubectl(ctx, "apply", "--server-side=false", "--filename", file)).To(ContainSubstring("customresourcedefinition"))
		}
	})

	It("keep the names that people type", func(ctx SpecContext) {
		for _, name := range []string{"agentruns", "arun", "models", "mdl", "toolpolicies", "tpol", "pawl"} {
			_, err := env.Plane.Kubectl(ctx, "get", name)
			Expect(err).NotTo(HaveOccurred())
		}
	})

	It("refuse through kubectl, too, what they do not know", func(ctx SpecContext) {
		file := filepath.Join(GinkgoT().TempDir(), "run.yaml")
		Expect(os.WriteFile(file, []byte(`
apiVersion: pawl.run/v1alpha1
kind: AgentRun
metadata: {name: example}
spec: {modelRef: {name: m}, prompt: Go., limit: {maxTurns: 3}}
`), 0o600)).To(Succeed())
		_, err := env.Plane.Kubectl(ctx, "apply", "--filename", file)
		Expect(err).To(MatchError(ContainSubstring(`unknown field "spec.limit"`)))
	})
})
