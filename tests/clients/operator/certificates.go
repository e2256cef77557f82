package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const service = "cache-operator"

// prepareWebhooks makes the certificate that all replicas share, writes it to a folder and enters its CA where the server looks for it.
func prepareWebhooks(ctx context.Context, c client.Client, namespace string) (string, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service + "-tls"}, Type: corev1.SecretTypeTLS}
	certificate, key, err := selfSigned(service + "." + namespace + ".svc")
	if err != nil {
		return "", err
	}
	secret.Data = map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
	if err := c.Create(ctx, secret); apierrors.IsAlreadyExists(err) {
		err = c.Get(ctx, client.ObjectKeyFromObject(secret), secret)
		if err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp("", "webhooks")
	if err != nil {
		return "", err
	}
	for name, data := range secret.Data {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			return "", err
		}
	}
	return folder, retry.RetryOnConflict(retry.DefaultBackoff, func() error { return enterBundle(ctx, c, secret.Data[corev1.TLSCertKey]) })
}

func enterBundle(ctx context.Context, c client.Client, bundle []byte) error {
	mutating := &admissionv1.MutatingWebhookConfiguration{}
	if err := c.Get(ctx, client.ObjectKey{Name: service}, mutating); err != nil {
		return err
	}
	for index := range mutating.Webhooks {
		mutating.Webhooks[index].ClientConfig.CABundle = bundle
	}
	if err := c.Update(ctx, mutating); err != nil {
		return err
	}
	validating := &admissionv1.ValidatingWebhookConfiguration{}
	if err := c.Get(ctx, client.ObjectKey{Name: service}, validating); err != nil {
		return err
	}
	for index := range validating.Webhooks {
		validating.Webhooks[index].ClientConfig.CABundle = bundle
	}
	if err := c.Update(ctx, validating); err != nil {
		return err
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(ctx, client.ObjectKey{Name: "caches.clients.example.com"}, definition); err != nil {
		return err
	}
	if conversion := definition.Spec.Conversion; conversion != nil && conversion.Webhook != nil {
		conversion.Webhook.ClientConfig.CABundle = bundle
		return c.Update(ctx, definition)
	}
	return nil
}

// selfSigned makes a certificate for a name, and its key.
func selfSigned(name string) ([]byte, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), nil
}
