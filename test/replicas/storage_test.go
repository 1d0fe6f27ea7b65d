package replicas

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/controlplane"
	"github.com/pawl-run/pawl/test/environment"
	"github.com/pawl-run/pawl/test/runs"
)

// etcd is one member, asked over the JSON form of its API.
type etcd struct{ url string }

// ask calls a method of the API.
func (e etcd) ask(ctx context.Context, method string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	call, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/v3/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(call)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answers %s to %s", answer.Status, method)
	}
	return json.NewDecoder(answer.Body).Decode(response)
}

// status is what a member says of itself; numbers of 64 bits are strings in JSON.
type status struct {
	Header struct {
		Member string `json:"member_id"`
	}
	Leader string
}

func (e etcd) status(ctx context.Context) (status, error) {
	var s status
	err := e.ask(ctx, "maintenance/status", struct{}{}, &s)
	return s, err
}

// alarm raises or ends the alarm that a member raises by itself when its quota is used up:
// from then on nothing is written.
func (e etcd) alarm(ctx context.Context, action string) {
	GinkgoHelper()
	var ignored struct{}
	s, err := e.status(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(e.ask(ctx, "maintenance/alarm", map[string]string{"action": action, "memberID": s.Header.Member, "alarm": "NOSPACE"}, &ignored)).To(Succeed())
}

var _ = Describe("etcd that has no space left", func() {
	It("stops every run where it is, without a hot loop, and lets all go on once it has", func(ctx SpecContext) {
		const size, outage = 40, 3 * lease
		w := newWorld(ctx, "nospace", script("steady", steadyTurns(5, 2*time.Second)...))
		newFleet(ctx, 2)
		w.start(ctx, "steady", size)
		Eventually(ctx, func() int { return len(newestIn(w)) }).Should(Equal(size))
		member := etcd{env.Plane.EtcdURL()}
		DeferCleanup(func(ctx SpecContext) { member.alarm(ctx, "DEACTIVATE") })
		member.alarm(ctx, "ACTIVATE")
		from := time.Now()
		refused := script("refused")
		refused.Namespace = w.Namespace
		Expect(env.Admin.Create(ctx, refused)).To(MatchError(ContainSubstring("database space exceeded")), "nothing is written")
		pause(ctx, outage)
		// Calls that had left before have answered by now; without a lease nothing else leaves.
		asked := len(ledgerOf(w))
		pause(ctx, 2*time.Second)
		Expect(ledgerOf(w)).To(HaveLen(asked), "nothing is sent that can't be announced")
		to := time.Now()
		member.alarm(ctx, "DEACTIVATE")
		counts := writes(from, to)
		AddReportEntry(fmt.Sprintf("operators' attempts to write in %s without space: %d for %d runs, %d for 2 worker leases",
			to.Sub(from).Round(time.Second), counts[w.Namespace], size, counts[environment.Namespace]), ReportEntryVisibilityAlways)
		Expect(counts[w.Namespace]).To(BeNumerically("<", size*25), "no hot loop")
		w.awaitAll(ctx, 2*time.Minute, v1alpha1.ReasonCompleted)
		t := w.check(ctx)
		t.expectSound("etcd without space")
		Expect(t.takeovers).To(BeEmpty())
		Expect(t.unknown).To(BeZero())
	}, NodeTimeout(5*time.Minute))
})

// ledgerOf lists what the tool server was asked for a world.
func ledgerOf(w *world) []string {
	var found []string
	for _, entry := range env.Tools.Ledger() {
		if strings.HasPrefix(entry.Run, w.Namespace+"/") {
			found = append(found, entry.Key)
		}
	}
	return found
}

// member is one of several, with the command that starts it.
type member struct {
	etcd
	name    string
	command []string
	process *controlplane.Process
}

func (m *member) start() {
	GinkgoHelper()
	var err error
	m.process, err = env.Plane.StartProcess(m.name, exec.Command(m.command[0], m.command[1:]...))
	Expect(err).NotTo(HaveOccurred())
}

// freeAddress is where nobody listens.
func freeAddress() string {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// startMembers starts a cluster of etcd.
func startMembers(ctx context.Context, n int) []*member {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	var cluster []string
	members := make([]*member, n)
	peers := make([]string, n)
	for i := range members {
		peers[i] = "http://" + freeAddress()
		members[i] = &member{etcd: etcd{"http://" + freeAddress()}, name: fmt.Sprintf("etcd-%d", i)}
		cluster = append(cluster, members[i].name+"="+peers[i])
	}
	for i, m := range members {
		m.command = []string{
			env.Plane.Program(controlplane.Etcd), "--name", m.name, "--data-dir", filepath.Join(dir, m.name), "--unsafe-no-fsync",
			"--listen-client-urls", m.url, "--advertise-client-urls", m.url,
			"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i],
			"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-state", "new",
		}
		m.start()
		DeferCleanup(func() { m.process.Kill() })
	}
	Eventually(ctx, func() *member { return leaderOf(ctx, members) }).WithTimeout(30*time.Second).ShouldNot(BeNil(), "the members agree on a leader")
	return members
}

// leaderOf is the member that leads, nil where there is none.
func leaderOf(ctx context.Context, members []*member) *member {
	for _, m := range members {
		if s, err := m.status(ctx); err == nil && s.Leader == s.Header.Member {
			return m
		}
	}
	return nil
}

// moveLeader makes another member the leader.
func moveLeader(ctx context.Context, members []*member) {
	GinkgoHelper()
	var old *member
	Eventually(ctx, func() *member { old = leaderOf(ctx, members); return old }).ShouldNot(BeNil())
	next := members[(slices.Index(members, old)+1)%len(members)]
	s, err := next.status(ctx)
	Expect(err).NotTo(HaveOccurred())
	var ignored struct{}
	Expect(old.ask(ctx, "maintenance/transfer-leadership", map[string]string{"targetID": s.Header.Member}, &ignored)).To(Succeed())
}

// elsewhere lets a spec run in an environment of its own.
func elsewhere(ctx context.Context, options environment.Options) {
	GinkgoHelper()
	own, err := environment.Prepare(ctx, options)
	Expect(err).NotTo(HaveOccurred())
	outer, outerTools := env, tools
	env, tools = own, newGateway(own.Tools)
	DeferCleanup(func() {
		tools.stop()
		env, tools = outer, outerTools
		Expect(own.Stop()).To(Succeed())
	})
}

var _ = Describe("Three members of etcd", func() {
	It("whose leader changes again and again cost no run anything", func(ctx SpecContext) {
		const size = 40
		members := startMembers(ctx, 3)
		var urls []string
		for _, m := range members {
			urls = append(urls, m.url)
		}
		shared := env
		elsewhere(ctx, environment.Options{
			Flags: []string{"--deletion-grace", deletionGrace.String()}, APIServerFlags: map[string]string{"etcd-servers": strings.Join(urls, ",")},
		})
		w := newWorld(ctx, "leader", script("steady", steadyTurns(7, 2*time.Second)...))
		newFleet(ctx, 2)
		w.start(ctx, "steady", size)
		Eventually(ctx, func() int { return len(newestIn(w)) }).Should(Equal(size))
		moved, killed := 0, 0
		for range 3 {
			moveLeader(ctx, members)
			moved++
			pause(ctx, time.Second)
			leader := leaderOf(ctx, members)
			if leader == nil {
				continue
			}
			leader.process.Kill()
			killed++
			pause(ctx, 1500*time.Millisecond)
			leader.process, _ = shared.Plane.StartProcess(leader.name, exec.Command(leader.command[0], leader.command[1:]...))
			Eventually(ctx, func() error { _, err := leader.status(ctx); return err }).Should(Succeed())
		}
		w.awaitAll(ctx, 2*time.Minute, v1alpha1.ReasonCompleted)
		t := w.check(ctx)
		t.expectSound(fmt.Sprintf("the leader was moved %d times and killed %d times", moved, killed))
		Expect(killed).To(BeNumerically(">", 0))
		Expect(t.takeovers).To(BeEmpty())
		Expect(t.unknown).To(BeZero())
		for _, run := range w.list(ctx) {
			Expect(runs.Succeeded(&run).Reason).To(Equal("Completed"))
		}
	}, NodeTimeout(5*time.Minute))
})
