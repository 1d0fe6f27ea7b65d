// Package sim runs the real operator against a simulated world, one step at a time.
//
// Real are the reconciler, the journal store, the membership with its leases and the turn
// machine. Simulated are clocks, the API server, watches and caches, sockets, tools,
// models and people. One number decides every latency, every fault and every order of
// steps, so that it replays one schedule exactly. A checker watches each write and each
// request as it happens.
package sim
