// Package proxy stands between two processes on loopback and takes the network away from
// them: it cuts their connections, or leaves them open and lets nothing through.
package proxy

import (
	"errors"
	"fmt"
	"net"
	"sync"
)

// Proxy forwards TCP connections to a target.
type Proxy struct {
	target   string
	listener net.Listener

	mu      sync.Mutex
	changed *sync.Cond
	cut     bool
	held    bool
	closed  bool
	refuses func(net.Conn) bool
	links   map[*link]bool
	done    sync.WaitGroup
}

// link is one forwarded connection.
type link struct{ client, server net.Conn }

// New listens on a free port and forwards what comes there to the target, a host and port.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening before %s: %w", target, err)
	}
	p := &Proxy{target: target, listener: listener, links: map[*link]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.done.Add(1)
	go p.accept()
	return p, nil
}

// Address is where the proxy listens, a host and port.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Cut breaks every connection and refuses new ones until Restore.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	p.breakAll()
}

// Hold keeps every connection open, and takes new ones, but lets nothing through in either
// direction until Restore: neither side learns what became of what it sent.
func (p *Proxy) Hold() { p.set(func() { p.held = true }) }

// Refuse breaks the connections for which the function says so, when they are opened. Nil
// refuses none.
func (p *Proxy) Refuse(which func(client net.Conn) bool) { p.set(func() { p.refuses = which }) }

// Restore lets everything through again. What was held arrives now.
func (p *Proxy) Restore() { p.set(func() { p.cut, p.held = false, false }) }

// Break ends the connections that there are, and takes new ones.
func (p *Proxy) Break() { p.set(p.breakAll) }

// Close ends everything.
func (p *Proxy) Close() error {
	p.set(func() {
		p.closed, p.held = true, false
		p.breakAll()
	})
	err := p.listener.Close()
	p.done.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
}

func (p *Proxy) breakAll() {
	for l := range p.links {
		reset(l.client)
		reset(l.server)
	}
	p.changed.Broadcast()
}

// reset closes a connection so that the other side sees an error, not an end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func (p *Proxy) accept() {
	defer p.done.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.done.Add(1)
		go func() {
			defer p.done.Done()
			p.serve(client)
		}()
	}
}

func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	refuses, refused := p.refuses, p.cut || p.closed
	p.mu.Unlock()
	if refused || refuses != nil && refuses(client) {
		reset(client)
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		reset(client)
		return
	}
	l := &link{client, server}
	p.mu.Lock()
	if p.cut || p.closed {
		p.mu.Unlock()
		reset(client)
		reset(server)
		return
	}
	p.links[l] = true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Add(2)
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			defer both.Done()
			p.copy(way[0], way[1])
		}()
	}
	both.Wait()
	_, _ = client.Close(), server.Close()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// copy forwards one direction until it ends.
func (p *Proxy) copy(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.pass()
		if n > 0 {
			if _, writeErr := to.Write(buffer[:n]); writeErr != nil {
				reset(from)
				return
			}
		}
		if err != nil {
			if tcp, ok := to.(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			}
			return
		}
	}
}

// pass waits while everything is held.
func (p *Proxy) pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.held && !p.cut && !p.closed {
		p.changed.Wait()
	}
}
