package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// One request, from the connection to the end of the response.
	requestTimeout = 10 * time.Second
	// Far more than a server of this program describes.
	maxBody = 1 << 20
)

// headers is a flag that may be given several times, `NAME:VALUE`.
type headers http.Header

func (h headers) String() string { return "" }

func (h headers) Set(text string) error {
	name, value, found := strings.Cut(text, ":")
	if !found {
		return fmt.Errorf("header %q has no colon", text)
	}
	http.Header(h).Add(name, strings.TrimSpace(value))
	return nil
}

// request sends requests, one after the other on one connection, and prints their responses, separated by empty lines.
func request(arguments []string, out io.Writer) error {
	if len(arguments) == 0 {
		return errors.New("usage: client URL [--method=M] [-H NAME:VALUE]… [--count=N]")
	}
	target, err := url.Parse(arguments[0])
	if err != nil {
		return err
	}
	head := headers{}
	flags := flag.NewFlagSet("client", flag.ContinueOnError)
	method := flags.String("method", http.MethodGet, "method of HTTP requests")
	count := flags.Int("count", 1, "number of requests")
	flags.Var(head, "H", "a header, NAME:VALUE")
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	send := sendHTTP
	if target.Scheme == "grpc" {
		send = sendGRPC
	}
	client := newClient(target.Scheme)
	for range *count {
		text, err := send(client, *method, target, http.Header(head))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n", text)
	}
	return nil
}

// newClient returns a client that follows no redirects and trusts every certificate.
func newClient(scheme string) *http.Client {
	protocols := new(http.Protocols)
	switch scheme {
	case "grpc":
		protocols.SetUnencryptedHTTP2(true)
	case "https":
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
	default:
		protocols.SetHTTP1(true)
	}
	transport := &http.Transport{
		Protocols: protocols, DisableCompression: true, MaxConnsPerHost: 1,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	unfollowed := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: transport, Timeout: requestTimeout, CheckRedirect: unfollowed}
}

func sendHTTP(client *http.Client, method string, target *url.URL, head http.Header) (string, error) {
	response, body, err := exchange(client, method, target.String(), head, nil)
	if err != nil {
		return "", err
	}
	return transcript(response, body), nil
}

// sendGRPC calls a method whose request is empty. A status other than OK is an error.
func sendGRPC(client *http.Client, _ string, target *url.URL, head http.Header) (string, error) {
	head = head.Clone()
	head.Set("Content-Type", grpcType)
	head.Set("Te", "trailers")
	response, body, err := exchange(client, http.MethodPost, "http://"+target.Host+grpcMethod, head, frame(""))
	if err != nil {
		return "", err
	}
	status := response.Trailer.Get(grpcStatus)
	if status == "" {
		// A response without messages has it among its headers.
		status = response.Header.Get(grpcStatus)
	}
	if response.StatusCode != http.StatusOK || status != "0" {
		return "", fmt.Errorf("HTTP status %d, gRPC status %q: %s", response.StatusCode, status, response.Header.Get("Grpc-Message"))
	}
	text, err := unframe(body)
	if err != nil {
		return "", err
	}
	return transcript(response, []byte(text)), nil
}

func exchange(client *http.Client, method, target string, head http.Header, body []byte) (*http.Response, []byte, error) {
	request, err := http.NewRequest(method, target, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	request.Header = head.Clone()
	if host := head.Get("Host"); host != "" {
		request.Host = host
		request.Header.Del("Host")
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	received, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	return response, received, err
}

// transcript is what is printed of a response: the description is the server's; what comes from a gateway has none.
func transcript(response *http.Response, body []byte) string {
	var text strings.Builder
	fmt.Fprintf(&text, "StatusCode=%d\n", response.StatusCode)
	for line := range strings.Lines(string(body)) {
		// An empty line would end the response.
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintln(&text, line)
		}
	}
	printHeaders(&text, "ResponseHeader", response.Header)
	return text.String()
}
