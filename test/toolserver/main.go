// Command toolserver serves the HTTP and MCP tools that samples and tests use. It
// keeps everything in memory and is no example of a safe service.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pawl-run/pawl/test/toolserver/tools"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8797", "address to listen on; port 0 picks a free one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "toolserver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, address string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: tools.New(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		// Calls in flight are cut off: a tool server that goes away is worth having.
		_ = server.Close()
	}()
	fmt.Printf("listening on http://%s\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
