package mcptool

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-run/pawl/internal/strictjson"
)

// budget bounds the bytes of one answer over all of its streams.
type budget struct{ left int64 }

func newBudget(n int64) *budget { return &budget{left: n} }

// reader reads from r until the budget is spent, and then fails with errTooLarge.
func (b *budget) reader(r io.Reader) io.Reader { return &budgetReader{r, b} }

type budgetReader struct {
	r io.Reader
	b *budget
}

// Read implements io.Reader.
func (r *budgetReader) Read(p []byte) (int, error) {
	if r.b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := r.r.Read(p[:min(int64(len(p)), r.b.left)])
	r.b.left -= int64(n)
	return n, err
}

// resume says how a stream that ended early can be taken up again.
type resume struct {
	lastEventID string
	delay       time.Duration
}

// readMessage finds the reply to the request id, which is JSON text, in an answer of
// either form.
func readMessage(resp *http.Response, id string, b *budget) (map[string]any, resume, error) {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	body := b.reader(resp.Body)
	if media == "text/event-stream" {
		return readStream(body, id)
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, resume{}, err
	}
	message, ok := parseReply(text, id)
	if !ok {
		return nil, resume{}, errUnreadable
	}
	return message, resume{}, nil
}

// parseReply accepts a JSON-RPC response with the id asked for and exactly one of
// result and error, both objects.
func parseReply(text []byte, id string) (map[string]any, bool) {
	message, err := strictjson.Object(text, strictjson.Limits{MaxBytes: len(text), MaxDepth: maxAnswerDepth})
	if err != nil {
		return nil, false
	}
	want, err := strictjson.CanonicalBytes([]byte(id))
	if err != nil || !bytes.Equal(want, strictjson.Canonical(message["id"])) || message["jsonrpc"] != "2.0" {
		return nil, false
	}
	_, hasResult := message["result"].(map[string]any)
	_, hasError := message["error"].(map[string]any)
	return message, hasResult != hasError
}

// readStream reads server-sent events until one of them is the reply. Others, such
// as progress, requests of the server and replies to nobody, are passed over.
func readStream(body io.Reader, id string) (map[string]any, resume, error) {
	var again resume
	reader := bufio.NewReader(body)
	var data []byte
	var event string
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			// What is not ended by an empty line is no event.
			if errors.Is(err, io.EOF) {
				err = errNoReply
			}
			return nil, again, err
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			if message, ok := parseReply(data, id); ok && (event == "" || event == "message") {
				return message, again, nil
			}
			data, event = nil, ""
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, value...)
		case "event":
			event = value
		case "id":
			again.lastEventID = value
		case "retry":
			if ms, err := strconv.ParseInt(value, 10, 32); err == nil {
				again.delay = time.Duration(ms) * time.Millisecond
			}
		}
	}
}
