// Command task is what the Jobs of the end-to-end suite run: it does what its arguments say
// and leaves its result where the kubelet looks for it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	argumentsFile = "/pawl/arguments.json"
	resultFile    = "/dev/termination-log"
)

// arguments of a call.
type arguments struct {
	// Do is echo, exit, grow or sleep.
	Do   string `json:"do"`
	Text string `json:"text"`
	// Code to exit with.
	Code int `json:"code"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "task:", err)
		os.Exit(1)
	}
}

func run() error {
	data, err := os.ReadFile(argumentsFile)
	if err != nil {
		return err
	}
	var a arguments
	if err := json.Unmarshal(data, &a); err != nil {
		return err
	}
	switch a.Do {
	case "echo":
		result, err := json.Marshal(map[string]string{"arguments": string(data), "effectKey": os.Getenv("PAWL_EFFECT_KEY"), "callId": os.Getenv("PAWL_CALL_ID")})
		if err != nil {
			return err
		}
		return os.WriteFile(resultFile, result, 0o600)
	case "exit":
		for i := range 200 {
			fmt.Printf("step %d: %s\n", i, a.Text)
		}
		if err := os.WriteFile(resultFile, []byte(a.Text), 0o600); err != nil {
			return err
		}
		os.Exit(a.Code)
	case "grow":
		var held [][]byte
		for {
			block := make([]byte, 8<<20)
			for i := range block {
				block[i] = 1
			}
			held = append(held, block)
			fmt.Println("holding", len(held)*8, "MiB")
		}
	case "sleep":
		// One that ends when it is told to says so by its exit code.
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("sleeping")
		time.Sleep(time.Hour)
	}
	return fmt.Errorf("nothing known to do: %q", a.Do)
}
