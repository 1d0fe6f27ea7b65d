package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// tokenLifetime outlives any test or demo; nothing here renews a token.
const tokenLifetime = int64(24 * 60 * 60)

// Access is the way into a control plane, the caller's own or one that another process runs.
type Access struct {
	dir      string
	binaries string
	admin    *rest.Config
}

// Attach returns access to the control plane that another process runs in dir.
func Attach(dir string) (*Access, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("attaching to a control plane: %w", err)
	}
	binaries, err := Binaries()
	if err != nil {
		return nil, fmt.Errorf("attaching to a control plane: %w", err)
	}
	a := &Access{dir: dir, binaries: binaries}
	if a.admin, err = clientcmd.BuildConfigFromFlags("", a.Kubeconfig()); err != nil {
		return nil, fmt.Errorf("attaching to a control plane: %w", err)
	}
	return a, nil
}

// Use returns access to the cluster that a kubeconfig names, as its user, with dir as the
// work folder.
func Use(dir, kubeconfig string) (*Access, error) {
	binaries, err := Binaries()
	if err != nil {
		return nil, fmt.Errorf("using the cluster of %s: %w", kubeconfig, err)
	}
	a := &Access{dir: dir, binaries: binaries}
	if a.admin, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return nil, fmt.Errorf("using the cluster of %s: %w", kubeconfig, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "kubeconfigs"), 0o700); err != nil {
		return nil, fmt.Errorf("using the cluster of %s: %w", kubeconfig, err)
	}
	content, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("using the cluster of %s: %w", kubeconfig, err)
	}
	return a, os.WriteFile(a.Kubeconfig(), content, 0o600)
}

// Dir returns the work folder.
func (a *Access) Dir() string { return a.dir }

// Config returns a copy of the configuration of a user in system:masters.
func (a *Access) Config() *rest.Config { return rest.CopyConfig(a.admin) }

// Kubeconfig returns the path of a kubeconfig for a user in system:masters.
func (a *Access) Kubeconfig() string { return filepath.Join(a.dir, "kubeconfig") }

// KubectlPath returns the path of the kubectl of the same release.
func (a *Access) KubectlPath() string { return filepath.Join(a.binaries, kubectl) }

// ImpersonatingConfig returns the admin's configuration acting as another user, whom the
// API server then authorizes and names to admission policies like one who logged in.
func (a *Access) ImpersonatingConfig(name string, groups ...string) *rest.Config {
	config := a.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: append([]string{"system:authenticated"}, groups...)}
	return config
}

// ImpersonatingKubeconfig writes a kubeconfig for what ImpersonatingConfig returns and
// returns its path.
func (a *Access) ImpersonatingKubeconfig(name string, groups ...string) (string, error) {
	return a.writeKubeconfig(filepath.Join("kubeconfigs", fileName(name)), a.ImpersonatingConfig(name, groups...))
}

// ServiceAccountConfig returns a client configuration that authenticates as a service account
// with a token from the TokenRequest API, the way a pod's projected token is made. The
// account has to exist.
func (a *Access) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	api, err := client.New(a.admin, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token for %s/%s: %w", namespace, name, err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(tokenLifetime)}}
	if err := api.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("requesting a token for %s/%s: %w", namespace, name, err)
	}
	config := rest.AnonymousClientConfig(a.admin)
	config.BearerToken = request.Status.Token
	config.QPS = -1
	return config, nil
}

// ServiceAccountKubeconfig writes a kubeconfig for the configuration that
// ServiceAccountConfig returns and returns its path.
func (a *Access) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	config, err := a.ServiceAccountConfig(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	return a.writeKubeconfig(filepath.Join("kubeconfigs", fileName(namespace+"."+name)), config)
}

// Kubectl runs the real kubectl as admin and returns what it printed on both outputs.
func (a *Access) Kubectl(ctx context.Context, args ...string) (string, error) {
	return a.KubectlAs(ctx, a.Kubeconfig(), args...)
}

// KubectlAs is Kubectl with another kubeconfig.
func (a *Access) KubectlAs(ctx context.Context, kubeconfig string, args ...string) (string, error) {
	out, err := a.KubectlCommand(ctx, kubeconfig, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("running kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// KubectlCommand prepares a kubectl that reads and writes nothing of the user's own
// configuration, for callers that stream its output or feed its input.
func (a *Access) KubectlCommand(ctx context.Context, kubeconfig string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, a.KubectlPath(), args...)
	home := filepath.Join(a.dir, "home")
	command.Env = append(os.Environ(),
		"KUBECONFIG="+kubeconfig, "HOME="+home, "KUBECACHEDIR="+filepath.Join(home, "cache"), "KUBERC=off")
	return command
}

// Apply runs kubectl apply on a kustomization folder or a file as admin. It applies on the
// client side, as a first-time user would, so that a definition too large for the
// last-applied annotation shows.
func (a *Access) Apply(ctx context.Context, path string) error {
	flag := "-f"
	for _, name := range []string{"kustomization.yaml", "kustomization.yml", "Kustomization"} {
		if _, err := os.Stat(filepath.Join(path, name)); err == nil {
			flag = "-k"
		}
	}
	_, err := a.Kubectl(ctx, "apply", flag, path)
	return err
}

// WriteKubeconfig writes a kubeconfig for a client configuration, under a name of the
// caller's, and returns its path.
func (a *Access) WriteKubeconfig(name string, config *rest.Config) (string, error) {
	return a.writeKubeconfig(filepath.Join("kubeconfigs", fileName(name)), config)
}

func (a *Access) writeKubeconfig(name string, config *rest.Config) (string, error) {
	path := filepath.Join(a.dir, name)
	return path, writeKubeconfig(path, config)
}

// UserConfig returns a client configuration that authenticates as the named user by
// certificate. The user has the rights that RBAC gives the name and the groups.
func (c *ControlPlane) UserConfig(name string, groups ...string) (*rest.Config, error) {
	// Tests have no use for client-side throttling.
	base := &rest.Config{QPS: -1}
	user, err := c.plane.AddUser(envtest.User{Name: name, Groups: groups}, base)
	if err != nil {
		return nil, fmt.Errorf("adding user %s: %w", name, err)
	}
	return user.Config(), nil
}

// UserKubeconfig writes a kubeconfig for the configuration that UserConfig returns and
// returns its path.
func (c *ControlPlane) UserKubeconfig(name string, groups ...string) (string, error) {
	config, err := c.UserConfig(name, groups...)
	if err != nil {
		return "", err
	}
	return c.writeKubeconfig(filepath.Join("kubeconfigs", fileName(name)), config)
}

func (c *ControlPlane) makeAdmin() error {
	var err error
	if c.admin, err = c.UserConfig("admin", "system:masters"); err != nil {
		return err
	}
	_, err = c.writeKubeconfig("kubeconfig", c.admin)
	return err
}

func writeKubeconfig(path string, config *rest.Config) error {
	const entry = "pawl"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[entry] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos[entry] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
		Token:                 config.BearerToken,
		Impersonate:           config.Impersonate.UserName,
		ImpersonateGroups:     config.Impersonate.Groups,
	}
	kubeconfig.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: entry}
	kubeconfig.CurrentContext = entry
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		return fmt.Errorf("writing kubeconfig %s: %w", path, err)
	}
	return nil
}

// fileName turns a user name such as system:kube-controller-manager into a file's.
func fileName(user string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(`:/\`, r) {
			return '-'
		}
		return r
	}, user)
}
