{{/* The DaemonSet of a family. Takes root, name, family and values (of the family). */}}
{{- define "drakit.daemonset" -}}
{{- $root := .root }}
{{- $values := .values }}
{{- $real := not $root.Values.mock.machine }}
{{- $privileged := and $real (eq .family "gpu") }}
{{- $hostNetwork := and $real (eq .family "nic") }}
{{- $passesNics := and $hostNetwork (dig "nic" "vfio" "" $root.Values.settings) }}
{{- $makesFunctions := and $hostNetwork (not $passesNics) (dig "nic" "sriov" "" $root.Values.settings) }}
{{- $plugins := printf "%s/plugins" $root.Values.kubeletDir }}
{{- $registry := printf "%s/plugins_registry" $root.Values.kubeletDir }}
{{- $driverRoot := trimSuffix "/" ($values.driverRoot | default "/") }}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    app.kubernetes.io/component: {{ .family }}
    {{- include "drakit.labels" $root | nindent 4 }}
spec:
  selector:
    matchLabels:
      {{- include "drakit.selector" (dict "root" $root "component" .family) | nindent 6 }}
  updateStrategy:
    {{- toYaml $values.updateStrategy | nindent 4 }}
  template:
    metadata:
      labels:
        {{- include "drakit.selector" (dict "root" $root "component" .family) | nindent 8 }}
        {{- with merge (deepCopy $values.podLabels) $root.Values.commonLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ .name }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      enableServiceLinks: false
      priorityClassName: {{ $values.priorityClassName }}
      {{- if $hostNetwork }}
      # Network interfaces of the host are only visible in the host's network namespace.
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if $real }}
      {{- with $values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      terminationGracePeriodSeconds: 30
      containers:
        - name: driver
          image: {{ include "drakit.image" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: [run, --family, {{ .family }}]
          env:
            - name: DRAKIT_NODE__NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
            # The pod's own sockets, so that two pods can serve at once.
            - name: DRAKIT_NODE__POD_UID
              valueFrom:
                fieldRef:
                  fieldPath: metadata.uid
            - name: POD_IP
              valueFrom:
                fieldRef:
                  fieldPath: status.podIP
            {{- if eq .family "gpu" }}
            - name: POD_NAMESPACE
              valueFrom:
                fieldRef:
                  fieldPath: metadata.namespace
            {{- end }}
            {{- range $name, $text := include "drakit.env" . | fromYaml }}
            - name: {{ $name }}
              value: {{ $text | quote }}
            {{- end }}
            {{- with $values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          # Ready follows serving within a second. While the API server is away the driver waits for it, an hour if need be.
          startupProbe:
            exec:
              command: [drakit-probe, /run/drakit/health.sock, /readyz]
            periodSeconds: 1
            timeoutSeconds: 6
            failureThreshold: 3600
          # To run a program in a container costs the node some 40 ms of processor time, whatever the program does: so rarely.
          readinessProbe:
            exec:
              command: [drakit-probe, /run/drakit/health.sock, /readyz]
            periodSeconds: 30
            timeoutSeconds: 6
            failureThreshold: 2
          livenessProbe:
            exec:
              command: [drakit-probe, /run/drakit/health.sock, /healthz]
            periodSeconds: 60
            timeoutSeconds: 6
            failureThreshold: 3
          securityContext:
            runAsUser: 0
            {{- if $privileged }}
            # NVML makes MIG instances only for those who may open its capability files, and device nodes are made by mknod.
            privileged: true
            {{- else if $passesNics }}
            # NICs are bound to vfio-pci in sysfs, and VFIO groups are opened before they are taken back.
            privileged: true
            {{- end }}
            # A privileged container cannot refuse what it has already.
            allowPrivilegeEscalation: {{ not (not (or $privileged $passesNics)) }}
            readOnlyRootFilesystem: true
            # SELinux's type of ordinary pods, container_t, is denied CDI's folder.
            seLinuxOptions:
              type: spc_t
            {{- if $hostNetwork }}
            # AppArmor's default profile of the container runtimes denies the mount that makes pods' /proc/sys writable.
            appArmorProfile:
              type: Unconfined
            {{- end }}
            capabilities:
              drop: [ALL]
              {{- if $hostNetwork }}
              # NET_ADMIN: interfaces and queues. SYS_ADMIN: pods' network namespaces. BPF and PERFMON: the programs that tell pods apart. NET_RAW: announcements of pods' addresses, and DHCP.
              add: [NET_ADMIN, NET_RAW, SYS_ADMIN, BPF, PERFMON]
              {{- end }}
            seccompProfile:
              type: RuntimeDefault
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          volumeMounts:
            # The same paths inside and outside: the kubelet uses the socket paths it is told word for word.
            - name: plugins
              mountPath: {{ $plugins }}
              {{- if $privileged }}
              # MPS daemons' shared memory is mounted here by the driver, and given to containers by the runtime on the host.
              mountPropagation: Bidirectional
              {{- end }}
            - name: registry
              mountPath: {{ $registry }}
            - name: cdi
              mountPath: {{ $root.Values.cdiDir }}
            - name: run
              mountPath: /run/drakit
            - name: tmp
              mountPath: /tmp
            {{- if $makesFunctions }}
            # Virtual functions are created by sriov_numvfs of the NIC. In a container that is not privileged, /sys is read-only.
            - name: pci
              mountPath: /sys/devices
            {{- end }}
            {{- if $privileged }}
            - name: host
              mountPath: /host
              readOnly: true
              mountPropagation: HostToContainer
            - name: dev
              mountPath: /host/dev
            {{- end }}
            {{- with $values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: plugins
          hostPath:
            path: {{ $plugins }}
            type: DirectoryOrCreate
        - name: registry
          hostPath:
            path: {{ $registry }}
            type: Directory
        - name: cdi
          hostPath:
            path: {{ $root.Values.cdiDir }}
            type: DirectoryOrCreate
        - name: run
          emptyDir:
            medium: Memory
            sizeLimit: 1Mi
        - name: tmp
          emptyDir:
            medium: Memory
            sizeLimit: 16Mi
        {{- if $makesFunctions }}
        - name: pci
          hostPath:
            path: /sys/devices
            type: Directory
        {{- end }}
        {{- if $privileged }}
        - name: host
          hostPath:
            path: /
        - name: dev
          hostPath:
            path: /dev
        {{- end }}
        {{- with $values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}

{{/* The variables of a driver that have a value, by name. What settings name stands above what the chart sets. */}}
{{- define "drakit.env" -}}
{{- $root := .root }}
{{- $env := dict "DRAKIT_LOG__FORMAT" "json" "DRAKIT_SERVE__SOCKET" "/run/drakit/health.sock" }}
{{- $shown := or $root.Values.mock.machine $root.Values.metrics.podMonitor.enabled (ne .family "nic") }}
{{- $_ := set $env "DRAKIT_SERVE__ADDRESS" (ternary "$(POD_IP):51510" "127.0.0.1:51510" (not (not $shown))) }}
{{- range $other := list "gpu" "nic" }}
{{- if ne $other $.family }}
{{- $_ := set $env (printf "DRAKIT_%s__ENABLED" (upper $other)) "false" }}
{{- end }}
{{- end }}
{{- if and (eq .family "gpu") $root.Values.admissionPolicy.enabled }}
{{- $_ := set $env "DRAKIT_GPU__MPS_TEMPLATE" (printf "$(POD_NAMESPACE)/%s-mps" (include "drakit.fullname" $root)) }}
{{- end }}
{{- if ne .values.driverName (printf "%s.drakit.dev" .family) }}
{{- $_ := set $env (printf "DRAKIT_%s__DRIVER_NAME" (upper .family)) .values.driverName }}
{{- end }}
{{- if ne $root.Values.kubeletDir "/var/lib/kubelet" }}
{{- $_ := set $env "DRAKIT_NODE__PLUGINS_DIR" (printf "%s/plugins" $root.Values.kubeletDir) }}
{{- $_ := set $env "DRAKIT_NODE__REGISTRY_DIR" (printf "%s/plugins_registry" $root.Values.kubeletDir) }}
{{- end }}
{{- if ne $root.Values.cdiDir "/var/run/cdi" }}
{{- $_ := set $env "DRAKIT_NODE__CDI_DIR" $root.Values.cdiDir }}
{{- end }}
{{- if $root.Values.mock.machine }}
{{- $_ := set $env "DRAKIT_MOCK__MACHINE" $root.Values.mock.machine }}
{{- else if eq .family "gpu" }}
{{- $place := trimSuffix "/" .values.driverRoot }}
{{- $_ := set $env "DRAKIT_GPU__DRIVER_ROOT" (printf "/host%s" $place) }}
{{- $_ := set $env "DRAKIT_GPU__DRIVER_ROOT_ON_HOST" (default "/" $place) }}
{{- $_ := set $env "DRAKIT_GPU__DEV_ROOT" (printf "/host%s" $place) }}
{{- end }}
{{- toYaml (merge (include "drakit.settings" $root | fromYaml) $env) }}
{{- end }}
