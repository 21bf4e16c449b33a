"""Builds what sysfs shows of network adapters below a folder: InfiniBand, RoCE and Ethernet."""

from __future__ import annotations

from pathlib import Path


class NetworkTree:
    """A root folder with `sys` and `proc`; every method writes files as the kernel would show them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "sys/class/net").mkdir(parents=True)
        (root / "sys/class/infiniband").mkdir(parents=True)
        (root / "sys/bus/pci/devices").mkdir(parents=True)
        self.route(None)

    def route(self, device: str | None) -> None:
        rows = ["Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT"]
        if device is not None:
            rows.append(f"{device}\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0")
        self.write("proc/net/route", "\n".join(rows))

    def write(self, path: str, text: str | bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())

    def pci(self, address: str, *, virtual_function: bool = False, driver: str = "mlx5_core") -> Path:
        folder = self.root / "sys/devices/pci0000:00" / address
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text("1\n")
        (folder / "vendor").write_text("0x15b3\n")
        (folder / "device").write_text("0x1021\n")
        (self.root / "sys/bus/pci/devices" / address).symlink_to(folder)
        drivers = self.root / "sys/bus/pci/drivers" / driver
        drivers.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(drivers)
        if virtual_function:
            (folder / "physfn").mkdir()
        return folder

    def rdma(
        self,
        device: str,
        address: str,
        *,
        netdev: str = "",
        virtual_function: bool = False,
        rate: str = "400 Gb/sec (4X NDR)",
        board: str = "MT_0000000838",
        up: bool = True,
    ) -> None:
        """A device with one port. With `netdev` it is RoCE, otherwise InfiniBand."""
        pci = self.pci(address, virtual_function=virtual_function)
        (pci / "infiniband").mkdir()
        base = f"sys/class/infiniband/{device}"
        self.write(f"{base}/board_id", board)
        self.write(f"{base}/hca_type", "MT4129")
        (self.root / base / "device").symlink_to(pci)
        port = f"{base}/ports/1"
        self.write(f"{port}/link_layer", "Ethernet" if netdev else "InfiniBand")
        self.write(f"{port}/rate", rate)
        self.state(device, up)
        for name in ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_xmit_discards"):
            self.write(f"{port}/counters/{name}", "0")
        for name in ("local_ack_timeout_err", "out_of_sequence", "rnr_nak_retry_err", "lifespan"):
            self.write(f"{port}/hw_counters/{name}", "12" if name == "lifespan" else "0")
        if netdev:
            (pci / "net" / netdev).mkdir(parents=True)
            self._netdev(netdev, pci, "up", 400_000)

    def state(self, device: str, up: bool, *, physical: str = "") -> None:
        port = f"sys/class/infiniband/{device}/ports/1"
        self.write(f"{port}/state", "4: ACTIVE" if up else "1: DOWN")
        self.write(f"{port}/phys_state", physical or ("5: LinkUp" if up else "2: Polling"))

    def count(self, device: str, counter: str, value: int | str | bytes, folder: str = "counters") -> None:
        text = value if isinstance(value, bytes) else str(value)
        self.write(f"sys/class/infiniband/{device}/ports/1/{folder}/{counter}", text)

    def ethernet(
        self, name: str, address: str, *, state: str = "up", speed: int = 100_000, driver: str = "ice"
    ) -> None:
        self._netdev(name, self.pci(address, driver=driver), state, speed)

    def virtual(self, name: str, **lower: str) -> None:
        """A device without hardware; `lower` names what it is made of."""
        self.write(f"sys/class/net/{name}/operstate", "up")
        self.write(f"sys/class/net/{name}/type", "1")
        for below in lower.values():
            (self.root / "sys/class/net" / name / f"lower_{below}").mkdir()

    def _netdev(self, name: str, pci: Path, state: str, speed: int) -> None:
        base = f"sys/class/net/{name}"
        for file, text in (
            ("operstate", state),
            ("carrier", "1" if state == "up" else "0"),
            ("flags", "0x1003"),
            ("type", "1"),
            ("speed", str(speed) if state == "up" else "-1"),
            ("carrier_changes", "2"),
            ("carrier_down_count", "1"),
            ("statistics/rx_crc_errors", "0"),
        ):
            self.write(f"{base}/{file}", text)
        (self.root / base / "device").symlink_to(pci)
