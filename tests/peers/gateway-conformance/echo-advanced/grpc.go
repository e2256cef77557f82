package main

import (
	"encoding/binary"
	"errors"
)

const (
	grpcType   = "application/grpc"
	grpcStatus = "Grpc-Status"
	// The method that is called. Servers of this program answer every method.
	grpcMethod = "/waypost.test.Echo/Echo"
	// Of a message: one byte that says whether it is compressed, four of its length.
	prefix = 5
	// The key of a protobuf field: number 1, a string.
	key = 1<<3 | 2
)

var errMalformed = errors.New("the response is no message of gRPC with one text")

// frame returns a message of gRPC: the protobuf message `{ string text = 1; }`.
func frame(text string) []byte {
	message := []byte{0, 0, 0, 0, 0}
	if text != "" {
		message = append(message, key)
		message = binary.AppendUvarint(message, uint64(len(text)))
		message = append(message, text...)
	}
	binary.BigEndian.PutUint32(message[1:], uint32(len(message)-prefix))
	return message
}

// unframe returns the text of the message that `frame` made.
func unframe(message []byte) (string, error) {
	if len(message) == prefix {
		return "", nil
	}
	if len(message) < prefix+2 || message[0] != 0 || message[prefix] != key {
		return "", errMalformed
	}
	length, read := binary.Uvarint(message[prefix+1:])
	text := message[prefix+1+max(read, 0):]
	if read <= 0 || length != uint64(len(text)) {
		return "", errMalformed
	}
	return string(text), nil
}
