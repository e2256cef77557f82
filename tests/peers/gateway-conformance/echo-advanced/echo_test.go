package main

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// listen serves on a free port and returns its address.
func listen(t *testing.T, serve func(net.Listener) error) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() { _ = serve(listener) }()
	return listener.Addr().String()
}

// run returns what the client prints.
func run(t *testing.T, arguments ...string) string {
	t.Helper()
	var out strings.Builder
	if err := request(arguments, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func expect(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

func TestHTTP(t *testing.T) {
	address := listen(t, serveHTTP)
	text := run(t, "http://"+address+"/v2?a=b", "--method=PUT", "-H", "Version:one", "-H", "version: two", "-H", "Host:echo-v1")
	expect(t, text, "StatusCode=200", "Host=echo-v1", "URL=/v2?a=b", "Method=PUT", "Proto=HTTP/1.1")
	expect(t, text, "RequestHeader=Version:one", "RequestHeader=Version:two", "ResponseHeader=Content-Type:text/plain")
	if !strings.Contains(text, "\nHostname=") {
		t.Errorf("no name in\n%s", text)
	}
}

func TestGRPC(t *testing.T) {
	address := listen(t, serveHTTP)
	text := run(t, "grpc://"+address, "-H", "x-test-case:set")
	expect(t, text, "StatusCode=200", "Host="+address, "Proto=HTTP/2.0", "Method=POST", "RequestHeader=X-Test-Case:set")
}

func TestTLS(t *testing.T) {
	certificate, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	address := listen(t, func(listener net.Listener) error { return serveTLS(listener, certificate) })
	expect(t, run(t, "https://"+address+"/"), "StatusCode=200", "Proto=HTTP/2.0")
}

func TestCountOnOneConnection(t *testing.T) {
	for scheme, protocols := range map[string]func(*http.Protocols){
		"http": func(p *http.Protocols) { p.SetHTTP1(true) },
		"grpc": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		var opened atomic.Int32
		address := listen(t, func(listener net.Listener) error {
			server := http.Server{Handler: http.HandlerFunc(handle), Protocols: new(http.Protocols)}
			server.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					opened.Add(1)
				}
			}
			protocols(server.Protocols)
			return server.Serve(listener)
		})
		text := run(t, fmt.Sprintf("%s://%s/", scheme, address), "--count=20")
		responses := strings.Split(strings.TrimSpace(text), "\n\n")
		if len(responses) != 20 || opened.Load() != 1 {
			t.Errorf("%s: %d responses on %d connections", scheme, len(responses), opened.Load())
		}
	}
}

func TestRedirectIsPrinted(t *testing.T) {
	address := listen(t, func(listener net.Listener) error {
		return http.Serve(listener, http.RedirectHandler("http://example.org/", http.StatusSeeOther))
	})
	text := run(t, "http://"+address+"/")
	expect(t, text, "StatusCode=303", "ResponseHeader=Location:http://example.org/")
}

func TestErrorOfGRPCFails(t *testing.T) {
	address := listen(t, func(listener net.Listener) error {
		server := http.Server{Protocols: new(http.Protocols)}
		server.Protocols.SetUnencryptedHTTP2(true)
		server.Handler = http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
			writer.Header().Set("Content-Type", grpcType)
			writer.Header().Set(grpcStatus, "12")
		})
		return server.Serve(listener)
	})
	err := request([]string{"grpc://" + address}, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), `gRPC status "12"`) {
		t.Errorf("got %v", err)
	}
}

func TestTCPIsSentBack(t *testing.T) {
	address := listen(t, serveTCP)
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	fmt.Fprint(connection, "hello")
	buffer := make([]byte, 5)
	if _, err := connection.Read(buffer); err != nil || string(buffer) != "hello" {
		t.Errorf("got %q, %v", buffer, err)
	}
}

func TestPortsOfPodsWithoutArguments(t *testing.T) {
	o, err := parse(nil)
	if err != nil || o.http.String() != "[8080]" || o.grpc.String() != "[7070]" || o.tcp.String() != "[9090]" {
		t.Errorf("got %+v, %v", o, err)
	}
	o, err = parse(strings.Fields("--tcp=9090 --port=8080 --grpc=7070 --port=8443 --tls=8443 --crt=/cert.crt --key=/cert.key"))
	if err != nil || o.http.String() != "[8080 8443]" || o.tls.String() != "[8443]" {
		t.Errorf("got %+v, %v", o, err)
	}
	if _, err := parse([]string{"--port=65536"}); err == nil {
		t.Error("a port of 17 bits is accepted")
	}
}
