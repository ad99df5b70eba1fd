package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/mailstead/mailstead/handlers"
	"github.com/mailstead/mailstead/handlers/operator"
	"github.com/mailstead/mailstead/service/health"
	"github.com/mailstead/mailstead/store"
)

// A sender sends a request to the running server, or to the handler in this process if the command
// opened the data directory itself.
type sender func(*http.Request) (*http.Response, error)

// send sends a request to the running server. If no server runs, it opens the data directory and
// answers the request in this process.
func (e *env) send(r *http.Request) (*http.Response, error) {
	resp, err := roundTripOverSocket(e.socketPath(), r)
	if err == nil {
		return resp, nil
	}
	if !errors.Is(err, os.ErrNotExist) && !isConnectionRefused(err) {
		return nil, err
	}
	s, err := e.offlineSettings()
	if err != nil {
		return nil, err
	}
	err = e.open(e.dir, s, false, func(o *operator.Operator) error {
		o.Service.Health.Host = new(health.Host)
		resp = handlers.Do(localHandler(o), r)
		return nil
	})
	if errors.Is(err, store.ErrInUse) {
		return nil, fmt.Errorf("a server uses %s, but its socket does not answer: %w", e.dir, err)
	}
	return resp, err
}

// localHandler returns the handler that answers in this process. It logs as the installation does,
// not to standard error, which has only errors for people.
func localHandler(o *operator.Operator) http.Handler {
	api := handlers.New(o.Service)
	api.Log = o.Log
	return o.Handler(api)
}

// errNoServer is wrapped by the error of sendOverSocket if no server runs.
var errNoServer = errors.New("no server runs")

// sendOverSocket sends a request to the running server. It returns errNoServer if no server runs.
func (e *env) sendOverSocket(r *http.Request) (*http.Response, error) {
	resp, err := roundTripOverSocket(e.socketPath(), r)
	if errors.Is(err, os.ErrNotExist) || isConnectionRefused(err) {
		return nil, fmt.Errorf("%w on %s: start it first", errNoServer, e.dir)
	}
	return resp, err
}

// serverRuns reports whether a server listens on the socket.
func (e *env) serverRuns() bool {
	conn, err := net.Dial("unix", e.socketPath())
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// withServer calls do with a sender for several requests. The sender uses the socket of the running
// server, or else the data directory, which stays open until do returns.
func (e *env) withServer(ctx context.Context, do func(send sender) error) error {
	probe, err := http.NewRequestWithContext(ctx, http.MethodGet, "/healthz", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := roundTripOverSocket(e.socketPath(), probe)
	if err == nil {
		resp.Body.Close()
		return do(func(r *http.Request) (*http.Response, error) { return roundTripOverSocket(e.socketPath(), r) })
	}
	if !errors.Is(err, os.ErrNotExist) && !isConnectionRefused(err) {
		return err
	}
	s, err := e.offlineSettings()
	if err != nil {
		return err
	}
	return e.open(e.dir, s, false, func(o *operator.Operator) error {
		h := localHandler(o)
		return do(func(r *http.Request) (*http.Response, error) { return handlers.Do(h, r), nil })
	})
}

func (e *env) socketPath() string { return filepath.Join(e.dir, operator.SocketName) }

func roundTripOverSocket(path string, r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body)) // the caller may send the request again
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	out.RequestURI, out.URL.Scheme, out.URL.Host = "", "http", "mailstead"
	t := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableKeepAlives: true,
	}
	resp, err := t.RoundTrip(out)
	if err != nil && r.Context().Err() == nil {
		return nil, fmt.Errorf("the server on %s ended before it answered, but may have done the request: %w", filepath.Dir(path), err)
	}
	return resp, err
}

// isConnectionRefused reports whether err means that the socket file exists but no server listens
// on it.
func isConnectionRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// ask sends the arguments in as JSON to the path of a command, and decodes the response into out.
func (e *env) ask(ctx context.Context, path string, in, out any) error {
	return sendCommand(ctx, e.send, path, in, out)
}

// askServer does what ask does, but returns an error if no server runs.
func (e *env) askServer(ctx context.Context, path string, in, out any) error {
	return sendCommand(ctx, e.sendOverSocket, path, in, out)
}

// askWithProgress does what ask does, and shows the progress of the command on the line. The path
// must be that of a long command, see operator.ProgressLine.
func (e *env) askWithProgress(ctx context.Context, send sender, line *progressLine, path string, in, out any) error {
	if line.out == nil {
		return sendCommand(ctx, send, path, in, out)
	}
	answer, err := postCommand(line.withProgress(ctx), send, path+"?"+operator.ProgressQuery, in)
	if err != nil {
		return err
	}
	defer answer.Close()
	for lines := json.NewDecoder(answer); ; {
		var one operator.ProgressLine
		switch err := lines.Decode(&one); {
		case err != nil:
			return fmt.Errorf("the server on %s ended before it answered, but may have done the request: %w", e.dir, err)
		case one.Error != "":
			return errors.New(one.Error)
		case one.Result != nil:
			return json.Unmarshal(one.Result, out)
		}
		line.show(one.What, one.Done, one.All)
	}
}

func sendCommand(ctx context.Context, send sender, path string, in, out any) error {
	answer, err := postCommand(ctx, send, path, in)
	if err != nil {
		return err
	}
	defer answer.Close()
	text, err := io.ReadAll(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// postCommand sends the arguments in as JSON to the path of a command, and returns the body of the
// response. If the status is not 200, the error has the server's message for people.
func postCommand(ctx context.Context, send sender, path string, in any) (io.ReadCloser, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := send(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return nil, errors.New(strings.TrimSpace(string(text)))
}
