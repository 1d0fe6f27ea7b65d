package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// maxWorkerName leaves room for what the name of a worker's Lease begins with.
const maxWorkerName = validation.DNS1123SubdomainMaxLength - len("pawl-worker-")

// check refuses flags that can't be meant, and says of each what to change.
func (o options) check() error {
	var problems []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	name := strings.Join(validation.IsDNS1123Subdomain(o.workerName), "; ")
	refuse(name != "", "--worker-name %q can't be part of a Lease's name: %s", o.workerName, name)
	refuse(len(o.workerName) > maxWorkerName, "--worker-name is longer than %d characters: shorten it", maxWorkerName)
	namespace := strings.Join(validation.IsDNS1123Label(o.namespace), "; ")
	refuse(namespace != "", "--namespace %q is no namespace's name: %s", o.namespace, namespace)
	refuse(o.leaseDuration < 2*time.Second, "--lease-duration is %s: at least 2s", o.leaseDuration)
	refuse(o.leaseDuration > 10*time.Minute, "--lease-duration is %s: at most 10m, or the runs of a replica that died wait that long", o.leaseDuration)
	refuse(o.maxConcurrentTurns < 1, "--max-concurrent-turns is %d: at least 1", o.maxConcurrentTurns)
	refuse(o.maxTurnsPerNamespace < 0, "--max-concurrent-turns-per-namespace is %d: at least 1, or 0 for four fifths of --max-concurrent-turns", o.maxTurnsPerNamespace)
	refuse(o.workers < 1, "--workers is %d: at least 1", o.workers)
	refuse(o.journalRefusalTimeout <= 0, "--journal-refusal-timeout is %s: more than 0, or runs end as soon as a journal is refused", o.journalRefusalTimeout)
	refuse(o.shutdownGrace < 0, "--shutdown-grace is %s: at least 0", o.shutdownGrace)
	refuse(o.deletionGrace <= 0, "--deletion-grace is %s: more than 0, or nobody can settle what a deleted run did; 1s is the least that makes sense", o.deletionGrace)
	return errors.Join(problems...)
}
