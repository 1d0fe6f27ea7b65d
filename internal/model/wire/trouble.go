package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"syscall"

	"github.com/pawl-run/pawl/internal/model"
)

// watchSending follows a request through the transport. The returned function reports
// whether a byte of it may have left. Go's transport buffers, and runs the hooks below
// before the buffer is first written out, so there "no hook ran" means "nothing left".
// Any other transport may run no hooks, which proves nothing.
func watchSending(ctx context.Context, transport http.RoundTripper) (context.Context, func() bool) {
	var wrote atomic.Bool
	if _, runsHooks := transport.(*http.Transport); !runsHooks {
		wrote.Store(true)
	}
	mark := func() { wrote.Store(true) }
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaderField:     func(string, []string) { mark() },
		WroteHeaders:         mark,
		GotFirstResponseByte: mark,
	})
	return ctx, wrote.Load
}

// failed describes an attempt that brought no answer. The text of err is not passed
// on: it may hold addresses, headers or pieces of the body.
func failed(parent, own context.Context, err error, sent bool, status int) *model.Error {
	e := &model.Error{Class: model.ClassTransient, Status: status, Sent: sent}
	switch {
	case parent.Err() != nil:
		e.Class, e.Detail = model.ClassCanceled, "the request was ended before its answer was complete"
	case errors.Is(context.Cause(own), errTimeout):
		e.Code, e.Detail = "timeout", "no complete answer came within the request's timeout"
	default:
		e.Code, e.Detail = trouble(err)
	}
	return e
}

// trouble names the kind of connection trouble: in one word, which people see, and for
// developers.
func trouble(err error) (code, detail string) {
	var (
		dns         *net.DNSError
		authority   x509.UnknownAuthorityError
		hostname    x509.HostnameError
		certificate x509.CertificateInvalidError
		verify      *tls.CertificateVerificationError
		record      tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &dns):
		return "host_not_found", "the endpoint's host name could not be resolved"
	case errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &certificate), errors.As(err, &verify):
		return "certificate_not_trusted", "the endpoint's certificate is not trusted"
	case errors.As(err, &record):
		return "no_tls", "the endpoint does not speak TLS"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection_refused", "the endpoint refused the connection"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection_cut", "the connection was cut"
	default:
		return "connection_failed", "the connection failed"
	}
}
