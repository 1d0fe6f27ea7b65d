package mcptool

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-run/pawl/internal/strictjson"
)

// budget bounds one answer: its bytes over all of its streams, and its nesting.
type budget struct {
	left  int64
	depth int
}

func newBudget(bytes int64, depth int) *budget { return &budget{left: bytes, depth: depth} }

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
		return readStream(body, id, b.depth)
	}
	text, err := io.ReadAll(body)
	if errors.Is(err, errTooLarge) {
		return nil, resume{}, tooLarge(text, id)
	}
	if err != nil {
		return nil, resume{}, err
	}
	message, err := parseReply(text, id, b.depth)
	return message, resume{}, err
}

// parseReply accepts a JSON-RPC response with the id asked for and exactly one of
// result and error, both objects.
func parseReply(text []byte, id string, depth int) (map[string]any, error) {
	message, err := strictjson.Object(text, strictjson.Limits{MaxBytes: len(text), MaxDepth: depth, MaxValues: maxAnswerValues})
	if errors.Is(err, strictjson.ErrTooManyValues) {
		return nil, tooLarge(text, id)
	}
	if err != nil || message["jsonrpc"] != "2.0" || !sameID(message["id"], id) {
		return nil, errUnreadable
	}
	_, hasResult := message["result"].(map[string]any)
	_, hasError := message["error"].(map[string]any)
	if hasResult == hasError {
		return nil, errUnreadable
	}
	return message, nil
}

// sameID compares an id that was read with one that was sent, which is JSON text.
func sameID(read any, sent string) bool {
	want, err := strictjson.CanonicalBytes([]byte(sent))
	return err == nil && bytes.Equal(want, strictjson.Canonical(read))
}

// readStream reads server-sent events until one of them is the reply. Others, such
// as progress, requests of the server and replies to nobody, are passed over.
func readStream(body io.Reader, id string, depth int) (map[string]any, resume, error) {
	var again resume
	reader := bufio.NewReader(body)
	for {
		e, err := readEvent(reader, &again)
		switch {
		case errors.Is(err, errTooLarge):
			return nil, again, tooLarge(e.data, id)
		case errors.Is(err, io.EOF):
			// What is not ended by an empty line is no event.
			return nil, again, errNoReply
		case err != nil:
			return nil, again, err
		case e.name != "" && e.name != "message":
			continue
		}
		message, err := parseReply(e.data, id, depth)
		var large *largeError
		if err == nil || errors.As(err, &large) && large.result {
			return message, again, err
		}
	}
}

// event is one server-sent event.
type event struct {
	name string
	data []byte
	// id is nil where it has none.
	id *string
}

// readEvent reads one event, up to the empty line after it, or the data that there is of
// it. Only with that line the event counts, and so does its id.
func readEvent(reader *bufio.Reader, again *resume) (event, error) {
	var e event
	for {
		line, err := reader.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		if field == "data" {
			if e.data != nil {
				e.data = append(e.data, '\n')
			}
			e.data = append(e.data, value...)
		}
		if err != nil {
			return e, err
		}
		switch field {
		case "event":
			e.name = value
		case "id":
			e.id = &value
		case "retry":
			if ms, err := strconv.ParseInt(value, 10, 32); err == nil {
				again.delay = time.Duration(ms) * time.Millisecond
			}
		}
		if line == "" {
			if e.id != nil {
				again.lastEventID = *e.id
			}
			return e, nil
		}
	}
}

// largeError is an answer that is larger than is read of one.
type largeError struct {
	// result is true where its beginning is that of a result, and so the tool ran.
	result bool
	// beginning of the answer, nil where it is of no use.
	beginning []byte
}

func (e *largeError) Error() string { return errTooLarge.Error() }

// maxBeginning is what is kept of it: more than any result may have.
const maxBeginning = 256 << 10

// tooLarge looks at what was read of an answer that is too large.
func tooLarge(text []byte, id string) error {
	if !beginsResult(text, id) {
		return &largeError{}
	}
	return &largeError{result: true, beginning: bytes.Clone(text[:min(len(text), maxBeginning)])}
}

// beginsResult says whether text begins a JSON-RPC response with a result. The id is
// compared if it comes first.
func beginsResult(text []byte, id string) bool {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return false
	}
	for {
		name, err := decoder.Token()
		if err != nil || name == json.Delim('}') {
			return false
		}
		if name == "result" {
			open, err := decoder.Token()
			return err == nil && open == json.Delim('{')
		}
		var value any
		if name == "error" || name == "method" || decoder.Decode(&value) != nil || name == "id" && !sameID(value, id) {
			return false
		}
	}
}
