// Package transport is the socket that every tool client shares. It sends a request
// once, whatever libraries and kept connections would like, and it knows exactly
// whether a byte of it was written:
//
//   - no request can be rewound, so net/http never sends one twice, not even a POST
//     with an Idempotency-Key header, which it would resend by itself;
//   - calls that may be sent only once get a connection of their own;
//   - redirects are not followed, and no proxy is used;
//   - HTTP/1.1 only, so that a connection carries one request at a time.
//
// The promise ends at our socket: a proxy in front of a service may still repeat
// what it was given once.
package transport
