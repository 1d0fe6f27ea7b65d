package integration

import (
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/fakemodel"
	"github.com/pawl-run/pawl/test/serviceaccount"
)

var _ = Describe("A Model on Vertex AI", Ordered, ContinueOnFailure, func() {
	var (
		w       world
		account *serviceaccount.Server
		server  *fakemodel.Server
	)

	BeforeAll(func(ctx SpecContext) {
		w = newWorld(ctx, "vertex")
		account = must(serviceaccount.Start())
		DeferCleanup(account.Close)
		server = must(fakemodel.Start(fakemodel.Options{Authorize: func(r *http.Request, _ []byte) string {
			token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if !account.Valid(token) {
				return "no valid token"
			}
			return ""
		}}))
		DeferCleanup(server.Close)
		server.Enqueue(fakemodel.Propose(fakemodel.Call{Name: "lookup", Arguments: `{"key":"profile"}`}), fakemodel.Text("It is active."))
		Expect(env.Admin.Create(ctx, &corev1.Secret{ObjectMeta: w.meta("google"), StringData: map[string]string{
			"key.json": account.KeyFile(), "other.json": strings.Replace(account.KeyFile(), serviceaccount.Email, "nobody@example.com", 1),
		}})).To(Succeed())
	})

	start := func(ctx SpecContext, name, key string) {
		GinkgoHelper()
		w.start(ctx, name, fmt.Sprintf(
			"model: {provider: Gemini, model: gemini-3-pro, endpoint: %q, platform: {vertex: {project: my-project, location: europe-west1}}, credentialsSecretRef: {name: google, key: %s}}",
			server.Root()+"/v1", key))
	}

	It("is asked with a token of the Secret's service account, fetched once for the run", func(ctx SpecContext) {
		start(ctx, "served", "key.json")
		run := awaitCompleted(ctx, w.key("served"))
		Expect(run.Status.Result.Text).To(Equal("It is active."))
		Expect(server.Refusals()).To(BeEmpty())
		Expect(account.Refusals()).To(BeEmpty())
		Expect(account.Requests()).To(Equal(1))
		Expect(server.Requests()).To(HaveLen(2))
		for _, request := range server.Requests() {
			Expect(request.URL.Path).To(Equal("/v1/projects/my-project/locations/europe-west1/publishers/google/models/gemini-3-pro:generateContent"))
		}
		records, _ := journalOf(ctx, run)
		for _, record := range records {
			Expect(string(record.Bytes)).NotTo(Or(ContainSubstring("PRIVATE KEY"), ContainSubstring("ya29")))
		}
	})

	It("ends a run when the account is refused, without having been asked", func(ctx SpecContext) {
		before := len(server.Requests())
		start(ctx, "refused", "other.json")
		run := awaitEnd(ctx, w.key("refused"), v1alpha1.ReasonModelError)
		Expect(condition(run, v1alpha1.ConditionSucceeded).Message).To(And(ContainSubstring("Unauthorized"), Not(ContainSubstring("nobody"))))
		Expect(server.Requests()).To(HaveLen(before))
		Expect(run.Status.Usage).To(BeNil(), "nothing was asked, so nothing was charged")
	})
})
